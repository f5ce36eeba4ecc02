# An application with classes of Sidekiq and ActiveJob, each for one of the ways in which a job ends.

require "active_job"

def seen(what)
  File.open("seen", "a") { |file| file.write("#{what}\n") }
end

class Noting
  def call(job, message, queue)
    seen("middleware #{message["class"]} #{message["args"]} #{queue} #{job.jid} #{message["retry_count"].inspect}")
    yield
  end
end

Sidekiq.configure_server do |config|
  config.server_middleware { |chain| chain.add(Noting) }
  config.death_handlers << ->(message, error) { seen("death #{message["class"]} #{message["retry_count"]} #{error.message}") }
  config.on(:startup) { seen("startup of #{Sidekiq.options[:concurrency]} threads") }
  config.on(:shutdown) { seen("shutdown") }
end

class Base
  include Sidekiq::Worker

  def perform(what)
    seen("#{self.class} #{what}")
    puts "said by #{what}"
    if what == "wait"
      begin
        sleep 0.01 until File.exist?("go")
      ensure
        seen("#{self.class} ends waiting")
      end
    end
    Process.kill(:KILL, Process.pid) if what == "die" && !File.exist?("died").tap { File.write("died", "") }
    raise Sidekiq::JobRetry::Skip if what == "skip"
    raise "told to #{what}" if %w[fail kill discard].include?(what)
  end
end

class Usual < Base
end

class Hooked < Base
  sidekiq_retry_in { |_count, error| error.message[/kill|discard/]&.to_sym || 1 }
  sidekiq_retries_exhausted { |message, error| seen("exhausted #{message["retry_count"]} #{error.message}") }
end

class Late < Base
  # Later than `retry_for` of the tests allows.
  sidekiq_retry_in { |_count, _error| 2 }
end

ActiveJob::Base.queue_adapter = :sidekiq
ActiveJob::Base.logger = nil

class Active < ActiveJob::Base
  discard_on(ArgumentError) { |_job, error| seen("discarded #{error.message}") }

  def perform(what)
    seen("Active #{what} #{provider_job_id}")
    raise ArgumentError, what if what == "discard"
    raise "told to #{what}" if what == "fail"
  end
end

class NoJob
  def initialize
    seen("NoJob was made")
  end
end
