# The gem faktory_worker_ruby: `client.rb push JOBS KEYS`; its own faktory-worker loads this file to work.
require "set"
require "faktory_worker_ruby"

class Sync
  include Faktory::Job

  FAILED = Set.new
  LOCK = Mutex.new

  def perform(n)
    say("start", n)
    sleep(n % 485 == 0 ? 1 : 0.005)
    if [7, 10].include?(n % 50) && LOCK.synchronize { FAILED.add?(n) }
      say("fail", n)
      raise "the first try fails"
    end
    say("end", n)
  end

  private

  def say(event, n)
    $stdout.syswrite(format("%s %d %.6f\n", event, n, Time.now.to_f))
  end
end

if ARGV.first == "push"
  client = Faktory::Client.new
  jobs, keys = ARGV.last(2).map(&:to_i)
  jobs.times do |n|
    job = { jobtype: "Sync", args: [n] }
    if n % 5 == 0
      job[:queue] = "ordered"
      job[:custom] = { seriatim: { key: "key-#{n / 5 % keys}", score: n } }
    end
    client.push(job)
  end
  client.close
end
