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

# As Sidekiq has them from 7.3 on, for jobs that iterate: they end a call, and are pushed again to go on.
if Sidekiq::VERSION.to_i == 6
  module Sidekiq::Job
    class Interrupted < RuntimeError; end

    class InterruptHandler
      def call(job, message, _queue)
        yield
      rescue Interrupted
        seen("#{message["class"]} was pushed to Sidekiq")
        raise Sidekiq::JobRetry::Skip
      end
    end
  end
end

Sidekiq.configure_server do |config|
  config.server_middleware do |chain|
    chain.add(Sidekiq::Job::InterruptHandler) if defined?(Sidekiq::Job::InterruptHandler)
    chain.add(Noting)
  end
  config.death_handlers << ->(message, error) { seen("death #{message["class"]} #{message["retry_count"]} #{error.message}") } if config.respond_to?(:death_handlers)
  config.on(:startup) do
    threads = Sidekiq.respond_to?(:options) ? Sidekiq.options[:concurrency] : Sidekiq.default_configuration.concurrency
    seen("startup of #{threads} threads")
  end
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
    raise Sidekiq::Job::Interrupted if what == "go on" && !File.exist?("interrupted").tap { File.write("interrupted", "") }
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
