# Sidekiq (Debian's ruby-sidekiq) with five threads in this process: its own client and fetcher on the same server.
require 'json'
require 'sidekiq'
require 'sidekiq/cli'
require 'sidekiq/launcher'

URL, JOBS = ARGV[0], Integer(ARGV[1])
Redis.silence_deprecations = true
Sidekiq.logger.level = Logger::FATAL
Sidekiq.configure_client { |config| config.redis = { url: URL, size: 40 } }
Sidekiq.configure_server { |config| config.redis = { url: URL, size: 40 } }

class Blank
  include Sidekiq::Worker
  LEFT = Queue.new
  def perform = LEFT << 1
end

def rate(jobs)
  started = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  yield
  (jobs / (Process.clock_gettime(Process::CLOCK_MONOTONIC) - started)).round
end

Sidekiq.redis { |redis| redis.del('queue:default') }
push = rate(JOBS) do
  (JOBS / 1000).times { Sidekiq::Client.push_bulk('class' => Blank, 'args' => Array.new(1000) { [] }) }
end
options = Sidekiq.options.merge(queues: ['default'], concurrency: 5, timeout: 8)
launcher = Sidekiq::Launcher.new(options)
drain = rate(JOBS) do
  launcher.run
  JOBS.times { Blank::LEFT.pop }
  launcher.stop
end
single = [JOBS, 20_000].min
threads = rate(single) do
  Array.new(32) { Thread.new { (single / 32).times { Blank.perform_async } } }.each(&:join)
end
Sidekiq.redis { |redis| redis.del('queue:default') }
puts JSON.generate(peer: "Sidekiq #{Sidekiq::VERSION}", settings: '5 threads', push_per_s: push,
                   drain_per_s: drain, push_single_32_per_s: threads)
exit!(0)
