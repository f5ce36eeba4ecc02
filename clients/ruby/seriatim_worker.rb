# Runs an application's classes under `seriatim serve`: Sidekiq's, ActiveJob's and Lowkiq's (docs/ruby.md).
# Copy it beside seriatim.rb; it needs that and the application's own gems. Ruby 3.0 or newer. MIT OR Apache-2.0.

require "json"
require "optparse"
require_relative "seriatim"

module SeriatimWorker
  RETRIES_DEFAULT = 25
  ERROR_CHARS_MAX = 10_000
  RETRY_SECONDS_MAX = 315_360_000
  # Times of Sidekiq are seconds up to version 7 and milliseconds from 8: these are no seconds.
  MILLISECONDS_MIN = 10**11
  CLASS_NAME = /\A(::)?[A-Z]\w*(::[A-Z]\w*)*\z/
  WRAPPERS = %w[ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper Sidekiq::ActiveJob::Wrapper].freeze

  # This payload can never run, whatever the number of attempts.
  class Refused < StandardError; end

  # What the command line or the application lacks.
  class Unusable < StandardError; end

  # Ends a handler of Lowkiq, as Sidekiq::Shutdown ends one of Sidekiq.
  class Halt < Interrupt; end

  Options = Struct.new(:require, :environment, :threads, :config, :lowkiq, :mac_key_env, :describe, :scheduler, keyword_init: true) do
    def self.of(arguments)
      options = new(threads: 1)
      parser = OptionParser.new("usage: ruby seriatim_worker.rb --require PATH [options]") do |on|
        on.on("--require PATH", "the application: a folder with config/environment.rb (Rails), or a Ruby file") { |v| options.require = v }
        on.on("--environment NAME", "RAILS_ENV and RACK_ENV") { |v| options.environment = v }
        on.on("--threads N", Integer, "as `concurrency` of the worker; sizes pools. Default: 1") { |v| options.threads = v }
        on.on("--config FILE", "sidekiq.yml, if it is not config/sidekiq.yml of the application") { |v| options.config = v }
        on.on("--lowkiq WORKER", "runs this module of Lowkiq's instead of Sidekiq's classes") { |v| options.lowkiq = v }
        on.on("--mac-key-env NAME", "the variable with `mac_key_env` of the bridge: Lowkiq's payloads that it has signed are read") { |v| options.mac_key_env = v }
        on.on("--with-scheduler", "starts though sidekiq-scheduler pushes its ticks from here too") { options.scheduler = true }
        on.on("--describe", "prints the settings for `seriatim import`, and ends") { options.describe = true }
      end
      left = parser.parse(arguments)
      raise Unusable, "#{left.first.inspect} is not an option; --help lists them" if left.any?
      raise Unusable, "--threads is #{options.threads}: write a number from 1 to 1000" unless (1..1000).cover?(options.threads)
      raise Unusable, "--require is missing: name the application" unless options.require || (options.describe && options.config)

      options
    rescue OptionParser::ParseError => error
      raise Unusable, "#{error.message}; --help lists the options"
    end
  end

  # The file sidekiq.yml.
  module SettingsFile
    module_function

    def read(options)
      path = options.config || beside(options.require)
      return {} unless path

      require "erb"
      require "yaml" # `rescue` below names its error.
      raise Unusable, "#{path}: no such file" unless File.exist?(path)

      settings = YAML.safe_load(ERB.new(File.read(path)).result, permitted_classes: [Symbol], aliases: true) || {}
      raise Unusable, "#{path}: write a map, as in `concurrency: 5`" unless settings.is_a?(Hash)

      settings = symbolic(settings)
      settings.merge(settings.delete((ENV["RAILS_ENV"] || ENV["RACK_ENV"] || "development").to_sym) || {})
    rescue Psych::Exception => error
      raise Unusable, "#{path}: #{error.message}"
    end

    def beside(application)
      return unless application && File.directory?(application)

      %w[sidekiq.yml sidekiq.yml.erb].map { |name| File.join(application, "config", name) }.find { |path| File.exist?(path) }
    end

    def symbolic(map)
      map.to_h { |key, value| [key.to_s.to_sym, value.is_a?(Hash) ? symbolic(value) : value] }
    end
  end

  # What differs between the versions of Sidekiq, 4.2 to 8.
  module Kiq
    module_function

    def config
      Sidekiq.respond_to?(:default_configuration) ? Sidekiq.default_configuration : Sidekiq
    end

    def options
      config.respond_to?(:[]) ? config : config.options
    end

    def prepare(threads, settings)
      options.merge!(settings.except(:queues, :concurrency, :capsules, :require, :environment))
      config.respond_to?(:concurrency=) ? config.concurrency = threads : options[:concurrency] = threads
    end

    # Version 4 retries in the chain of middleware, and from 7.3 on a job that iterates is pushed again from there; here the
    # outcome does both.
    def keep_outcomes_here
      chain = config.server_middleware
      chain.remove(Sidekiq::Middleware::Server::RetryJobs) if defined?(Sidekiq::Middleware::Server::RetryJobs)
      chain.remove(Sidekiq::Job::InterruptHandler) if defined?(Sidekiq::Job::InterruptHandler)
    end

    def report(error, context)
      return config.handle_exception(error, context) if config.respond_to?(:handle_exception)

      Object.new.extend(Sidekiq::ExceptionHandler).handle_exception(error, context)
    end

    def fire(event, reraise: false)
      (options[:lifecycle_events][event] || []).each do |hook|
        hook.call
      rescue StandardError => error
        report(error, { context: "a hook of #{event} failed" })
        raise if reraise
      end
    end

    def reloader
      options[:reloader] || proc { |&block| block.call }
    end

    # What lines of its log name.
    def in_context(message, &block)
      return yield unless defined?(Sidekiq::Context)

      Sidekiq::Context.with({ class: message["wrapped"] || message["class"], jid: message["jid"] }, &block)
    end

    # Of a job that iterates, and goes on later.
    def interrupted?(error)
      defined?(Sidekiq::Job::Interrupted) && error.is_a?(Sidekiq::Job::Interrupted)
    end

    # Of a middleware that has dealt with the job itself.
    def handled?(error)
      defined?(Sidekiq::JobRetry::Handled) && error.is_a?(Sidekiq::JobRetry::Handled)
    end
  end

  # Calls that can be interrupted: by a cancellation, a time limit, the stop of the node, or its death. What interrupts
  # them is raised while the application's code runs, and nowhere else.
  class Interruptible < Seriatim::ProcessWorker
    def initialize(halt, out, &handle)
      super(out: out, &handle)
      @halt, @running = halt, {}
    end

    def run
      # The threads of calls inherit it.
      Thread.handle_interrupt(@halt => :never) { super }
    end

    private

    def cancel(...)
      super
      interrupt
    end

    def abandon
      super
      interrupt
    end

    # Each of them once: a second time it would hit what cleans up.
    def interrupt
      @lock.synchronize do
        ended = @running.select { |_, over| over.call }.keys
        ended.each do |thread|
          @running.delete(thread)
          thread.raise(@halt, "interrupted")
        end
      end
    end

    # Runs the block; `over` tells whether it is to be interrupted.
    def interruptible(over)
      @lock.synchronize { @running[Thread.current] = over }
      Thread.handle_interrupt(@halt => :immediate) do
        raise @halt, "interrupted" if over.call

        yield
      end
    ensure
      @lock.synchronize { @running.delete(Thread.current) }
      forget_interrupt
    end

    # One that came too late must not hit the next job.
    def forget_interrupt
      Thread.handle_interrupt(@halt => :immediate) { Thread.pass }
    rescue @halt
      nil
    end

    def caused_by_halt?(error)
      seen = []
      while error && !seen.include?(error.object_id)
        return true if error.is_a?(@halt)

        seen << error.object_id
        error = error.cause
      end
      false
    end
  end

  # The jobs of a lane, one after the other.
  class SidekiqWorker < Interruptible
    def initialize(out)
      super(Sidekiq::Shutdown, out) { |lane| outcome(lane) }
    end

    private

    def outcome(lane)
      lane.jobs.each_index do |number|
        ended = lane.cancelled?(lane.jobs[number]) ? :interrupted : attempt(lane, number)
        next if ended == :done
        return stopped(lane, number) if ended == :interrupted

        return { **ended, done: number }
      end
      Seriatim.done
    end

    def attempt(lane, number)
      job = SidekiqJob.new(lane, number)
      begin
        interruptible(-> { lane.cancelled?(lane.jobs[number]) }) { job.run }
        :done
      rescue Refused
        raise
      rescue Exception => error # rubocop:disable Lint/RescueException
        return :done if Kiq.handled?(error)
        return :interrupted if Kiq.interrupted?(error)
        return :interrupted if caused_by_halt?(error) && lane.cancelled?(lane.jobs[number])

        job.failed(error)
      end
    rescue Refused => refusal
      Seriatim.bury("refused: #{refusal.message}")
    rescue Seriatim::Stopped => stop
      stop.outcome[:outcome] == "release" ? stop.outcome : :interrupted
    end

    # If the others of the lane go on, what is cancelled ends so all the same.
    def stopped(lane, number)
      left = lane.jobs.drop(number)
      left.all? { |job| lane.cancelled?(job) } ? Seriatim.cancel("interrupted", done: number) : Seriatim.snooze(0, done: number)
    end
  end

  # A job of Sidekiq: what runs it, and what becomes of it when it fails.
  class SidekiqJob
    def initialize(lane, number)
      @lane, @number, @job = lane, number, lane.jobs[number]
      @hash = checked(@job["payload"])
      # A bridge tells the store of the failures before: both counts have them.
      @failures = [@hash["retry_count"] || -1, number.zero? ? lane.retry_count : -1].max + 1
    end

    def run
      message = told
      Kiq.in_context(message) do
        Kiq.reloader.call do
          @instance = instance
          @instance.jid = message["jid"]
          context = self
          @instance._context = context if @instance.respond_to?(:_context=)
          Kiq.config.server_middleware.invoke(@instance, message, message["queue"]) do
            @instance.perform(*message["args"])
          end
        end
      end
    end

    # Asked by jobs that iterate.
    def stopping?
      @lane.cancelled?(@job)
    end

    # The outcome; `:done` if it is discarded, but others of its lane follow.
    def failed(error)
      message = noted(error)
      Kiq.report(error, { context: "Job raised exception", job: message })
      return discarded(message, error) unless message["retry"]
      return exhausted(message, error) if used_up?(message)

      case wait = wait(message, error)
      when :discard then discarded(message, error)
      when :kill then exhausted(message, error)
      else Seriatim.retry(text(error), after: [wait, RETRY_SECONDS_MAX].min)
      end
    end

    private

    def checked(payload)
      raise Refused, "the payload is not a Sidekiq job: write {\"class\":…,\"args\":[…]}" unless payload.is_a?(Hash)
      raise Refused, "`class` is #{payload["class"].inspect}: write the name of a class" unless name?(payload["class"])
      raise Refused, "`args` is not a list" unless payload["args"].is_a?(Array)

      count = payload["retry_count"]
      raise Refused, "`retry_count` is #{count.inspect}: write a whole number" unless count.nil? || count.is_a?(Integer)

      payload
    end

    def name?(text)
      text.is_a?(String) && CLASS_NAME.match?(text)
    end

    # The hash as Sidekiq hands it to middleware. Pushed without Sidekiq's client, it lacks what that adds.
    def told
      message = JSON.parse(JSON.generate(@hash))
      message["jid"] ||= @job["job_id"]
      message["queue"] ||= @lane.queue
      message["retry_count"] = @failures - 1 if @failures.positive?
      message
    end

    def instance
      found = constant(@hash["class"])
      return wrapped(found) if defined?(ActiveJob::Base) && found.is_a?(Class) && found < ActiveJob::Base

      is_worker = found.is_a?(Class) && found.include?(Sidekiq::Worker)
      raise Refused, "#{@hash["class"]} is not a class of Sidekiq's: it must include Sidekiq::Job" unless is_worker
      raise Refused, "#{@hash["class"]} runs code that its arguments contain" if found.name.start_with?("Sidekiq::Extensions::")

      check_wrapped if WRAPPERS.include?(found.name)
      found.new
    end

    # Arguments name the class that a wrapper runs.
    def check_wrapped
      name = @hash["args"].first["job_class"] if @hash["args"].first.is_a?(Hash)
      raise Refused, "`args[0].job_class` is #{name.inspect}: write the name of a class" unless name?(name)

      found = constant(name)
      raise Refused, "#{name} is not a class of ActiveJob" unless found.is_a?(Class) && found < ActiveJob::Base
    end

    # An ActiveJob class that a payload names without Sidekiq's wrapper.
    def wrapped(found)
      Class.new do
        attr_accessor :jid

        define_method(:perform) do |*arguments|
          ActiveJob::Base.execute(found.new(*arguments).serialize.merge("provider_job_id" => jid))
        end
      end.new
    end

    def constant(name)
      name.delete_prefix("::").split("::").inject(Object) { |found, part| found.const_get(part, false) }
    end

    def noted(error)
      message, now = { "retry" => true, **own_options }.merge(told.compact), Time.now.to_f
      message["retry_count"] = @failures
      message[@failures.zero? ? "failed_at" : "retried_at"] = now
      message["failed_at"] = first_failed_at(now) if message["retry_for"]
      message["error_class"], message["error_message"] = error.class.name, utf8(error.message)
      message
    end

    # What Sidekiq's client copies into a job from its class.
    def own_options
      options = @instance.class.respond_to?(:get_sidekiq_options) ? @instance.class.get_sidekiq_options : {}
      options.slice(*(@hash.key?("jid") ? %w[retry] : %w[retry retry_for dead]))
    end

    # Kept in the store from the first failure on, as a step of the lane.
    def first_failed_at(now)
      told = @hash["failed_at"] || @lane.step("first failure of #{@job["job_id"]}") { now }
      told >= MILLISECONDS_MIN ? told / 1000.0 : told
    end

    def used_up?(message)
      limit = message["retry_for"]
      return message["failed_at"] + limit < Time.now.to_f if limit.is_a?(Numeric)

      limit = message["retry"]
      limit = Kiq.options[:max_retries] || RETRIES_DEFAULT unless limit.is_a?(Integer)
      @failures >= limit
    end

    def wait(message, error)
      told = hook(message, :sidekiq_retry_in_block) do |block|
        given = [@failures, error, message]
        block.call(*(block.lambda? ? given.first(block.arity.abs) : given))
      end
      return told if %i[discard kill].include?(told)

      told = told.respond_to?(:to_i) ? told.to_i : 0
      told.positive? ? told : @failures**4 + 15 + rand(10 * (@failures + 1))
    end

    def exhausted(message, error)
      told = hook(message, :sidekiq_retries_exhausted_block) { |block| block.call(message, error) }
      return discarded(message, error) if message["dead"] == false || told == :discard

      tell_of_death(message, error)
      Seriatim.bury(text(error))
    end

    # In `accumulate`, a cancellation would take the jobs that follow in the lane with it.
    def discarded(message, error)
      tell_of_death(message, error)
      @number == @lane.jobs.size - 1 ? Seriatim.cancel(text(error)) : :done
    end

    # Runs a hook of the class, or of the class that ActiveJob's wrapper runs.
    def hook(message, name)
      owner = message["wrapped"] ? constant(message["wrapped"]) : @instance
      block = owner.public_send(name) if owner.respond_to?(name)
      yield block if block
    rescue Exception => error # rubocop:disable Lint/RescueException
      Kiq.report(error, { context: "#{name} failed", job: message })
      nil
    end

    def tell_of_death(message, error)
      (Kiq.options[:death_handlers] || []).each do |handler|
        handler.call(message, error)
      rescue StandardError => failure
        Kiq.report(failure, { context: "a death handler failed", job: message })
      end
    end

    def text(error)
      "#{error.class}: #{utf8(error.message)}"
    end

    def utf8(text)
      text.to_s.dup.force_encoding("UTF-8").scrub[0, ERROR_CHARS_MAX]
    rescue StandardError
      "the error has no message"
    end
  end

  # Payloads that Marshal wrote, which builds any object, and so runs code: only what a bridge has signed is read.
  class Envelope
    SIGNED = "seriatim lowkiq 1"
    KEY_BYTES_MIN = 32

    # `variable` has the key; without one all envelopes are refused.
    def initialize(variable)
      return unless variable

      @key = ENV[variable].to_s.strip
      return require("openssl") if @key.bytesize >= KEY_BYTES_MIN

      raise Unusable, "--mac-key-env: variable #{variable} has #{@key.bytesize} bytes: at least #{KEY_BYTES_MIN}; set it to the key of the bridge"
    end

    def self.is?(payload)
      payload.is_a?(Hash) && payload.key?("$marshal")
    end

    def open(queue, id, payload)
      bytes, mac = payload.values_at("$marshal", "mac").map { |text| text.to_s.unpack1("m0") }
      raise Refused, "a payload of Marshal can run code: name the key of its signature with --mac-key-env" unless @key

      signed = [SIGNED, queue, id, bytes].map(&:b).join("\0")
      return bytes if OpenSSL.secure_compare(OpenSSL::HMAC.digest("SHA256", @key, signed), mac)

      raise Refused, "the signature of a payload of Marshal does not match queue, id and key: it was signed with another key, or not by a bridge"
    rescue ArgumentError
      raise Refused, "a payload of Marshal is not valid base64"
    end
  end

  # A call is a batch: the lanes by their keys, each with its payloads.
  class LowkiqWorker < Interruptible
    def initialize(worker, envelope, out)
      super(Halt, out) { Seriatim.done }
      @worker, @envelope = worker, envelope
    end

    private

    def outcomes_of(lanes)
      batch, ended = {}, {}
      lanes.each do |lane|
        batch[lane] = payloads_of(lane)
      rescue Refused => refusal
        ended[lane] = Seriatim.bury("refused: #{refusal.message}")
      rescue StandardError => error
        # A newer version may have the class that is missing.
        ended.merge!(failed({ lane => lane.payloads }, error))
      end
      error = batch.empty? ? nil : attempt(batch)
      ended.merge!(error ? failed(batch, error) : batch.transform_values { Seriatim.done })
      ended.values_at(*lanes)
    end

    def payloads_of(lane)
      raise Refused, "a job of Lowkiq needs a key, its id" unless lane.key

      lane.payloads.map do |payload|
        next payload unless Envelope.is?(payload)

        load = Lowkiq.respond_to?(:load_payload) ? Lowkiq.load_payload : Marshal.method(:load)
        load.call(@envelope.open(@worker.queue_name, lane.key, payload))
      end
    end

    # The error; `nil` if all went well.
    def attempt(batch)
      lanes, by_id = batch.keys, batch.transform_keys(&:key)
      interruptible(-> { lanes.all?(&:cancelled?) }) do
        Lowkiq.server_wrapper.call(@worker, by_id) { @worker.perform(by_id) }
      end
      nil
    rescue Exception => error # rubocop:disable Lint/RescueException
      error
    end

    def failed(batch, error)
      lanes = batch.keys
      return lanes.to_h { |lane| [lane, Seriatim.cancel("interrupted")] } if caused_by_halt?(error) && lanes.all?(&:cancelled?)

      warn("#{@worker} failed: #{error.full_message(highlight: false)}")
      text = formatted(error)
      last = lanes.select { |lane| lane.retry_count + 1 >= @worker.max_retry_count }
      ended = lanes.to_h { |lane| [lane, last.include?(lane) && lane.jobs.one? ? Seriatim.bury(text) : again(lane, text)] }
      # Behind what may fail: it is told once.
      tell_of_end(batch.slice(*last), text)
      ended
    end

    # Before version 1.2 Lowkiq has no such setting.
    def formatted(error)
      Lowkiq.respond_to?(:format_error) ? Lowkiq.format_error.call(error).to_s : error.message
    end

    # Of several payloads the queue buries the first when its own `max_retries` are used up, and begins anew with the rest.
    def again(lane, text)
      Seriatim.retry(text, after: @worker.retry_in(lane.retry_count + 1).clamp(0, RETRY_SECONDS_MAX))
    end

    def tell_of_end(batch, text)
      return if batch.empty?

      ended = batch.map { |lane, payloads| { id: lane.key, payloads: [[payloads.first, lane.jobs.first["score"]]], error: text } }
      @worker.retries_exhausted(ended)
    rescue StandardError => error
      warn("retries_exhausted of #{@worker} failed: #{error.full_message(highlight: false)}")
    end
  end

  # The application, loaded as its own server would load it.
  class Application
    def initialize(options)
      @options = options
      ENV["RAILS_ENV"] = ENV["RACK_ENV"] = options.environment if options.environment
      ENV["RAILS_MAX_THREADS"] ||= options.threads.to_s
      @settings = SettingsFile.read(options)
    end

    attr_reader :settings

    def load
      path = @options.require
      # Before the application: what it sets up in `configure_server` is for here.
      load_sidekiq unless @options.lowkiq
      return load_file(path) unless File.directory?(path)

      file = File.expand_path("config/environment.rb", path)
      raise Unusable, "#{path} has no config/environment.rb: name a Ruby file that loads the application" unless File.exist?(file)

      require "rails"
      require "sidekiq/rails" unless @options.lowkiq
      require file
    end

    # What the file itself lacks, its backtrace tells.
    def load_file(path)
      file = File.expand_path(path)
      require file
    rescue LoadError => error
      raise if error.path != file

      raise Unusable, "cannot load #{path}: no such file"
    end

    def load_sidekiq
      require "sidekiq/cli"
      Kiq.prepare(@options.threads, @settings)
    rescue LoadError => error
      raise unless error.path == "sidekiq/cli"
      raise Unusable, "cannot load Sidekiq: #{error.message}. For a module of Lowkiq, write --lowkiq WORKER" unless @options.describe
    end

    def worker(out)
      @options.lowkiq ? LowkiqWorker.new(lowkiq_module, Envelope.new(@options.mac_key_env), out) : SidekiqWorker.new(out)
    end

    # Runs the block between the hooks of start and stop.
    def serving
      return lowkiq_serving { yield } if @options.lowkiq

      refuse_scheduler
      Kiq.keep_outcomes_here
      Kiq.fire(:startup, reraise: true)
      yield
      %i[quiet shutdown exit].each { |event| Kiq.fire(event) }
    end

    private

    def refuse_scheduler
      return if @options.scheduler || !(defined?(::SidekiqScheduler) || defined?(::Sidekiq::Scheduler))

      raise Unusable, "sidekiq-scheduler is loaded, which would push its ticks from here too: do not load it here, " \
                      "or write --with-scheduler if no [[cron]] entry pushes them"
    end

    def lowkiq_serving
      raise Unusable, "#{@options.require} loads no Lowkiq" unless defined?(::Lowkiq::Worker)

      Lowkiq.threads_per_node = @options.threads if Lowkiq.respond_to?(:threads_per_node=)
      Lowkiq.on_server_init.call
      yield
    end

    def lowkiq_module
      name = @options.lowkiq
      found = CLASS_NAME.match?(name) && Object.const_defined?(name) && Object.const_get(name)
      return found if found && found.singleton_class.include?(::Lowkiq::Worker)

      raise Unusable, "--lowkiq is #{name}: write the name of a module that extends Lowkiq::Worker"
    end
  end

  # The settings of the application, as JSON for `seriatim import`.
  class Description
    def initialize(options, application)
      @options, @application = options, application
    end

    def to_h
      bundler = true if ENV.key?("BUNDLE_GEMFILE")
      told = { require: @options.require, config: @options.config, bundler: bundler }
      { **told, sidekiq: sidekiq, classes: classes, cron: cron, lowkiq: lowkiq }.compact
    end

    private

    def sidekiq
      settings = @application.settings
      return if settings.empty? && !defined?(::Sidekiq)

      kept = settings.slice(:concurrency, :timeout, :max_retries, :dead_max_jobs, :dead_timeout_in_seconds)
      version = Sidekiq::VERSION if defined?(::Sidekiq::VERSION)
      served = queues(settings)
      served = [["default", nil]] if served.empty?
      { version: version, **kept, queues: served, capsules: capsules(settings), middleware: middleware }
    end

    # Of version 7 and later, from its file and from the application.
    def capsules(settings)
      of_file = (settings[:capsules] || {}).map { |name, own| { name: name, concurrency: own[:concurrency], queues: queues(own) } }
      made = defined?(::Sidekiq) && Kiq.config.respond_to?(:capsules) ? Kiq.config.capsules.values : []
      made = made.reject { |one| one.name.to_s == "default" || of_file.any? { |other| other[:name].to_s == one.name.to_s } }
      of_file + made.map { |one| { name: one.name, concurrency: one.concurrency, queues: weighted(one.queues.tally) } }
    end

    # From how often each is named.
    def weighted(counts)
      counts.map { |name, count| [name, count > 1 ? count : nil] }
    end

    # Pairs of name and weight; without weights the order is strict.
    def queues(settings)
      (settings[:queues] || []).map do |queue|
        name, weight = queue.is_a?(Array) ? queue : queue.to_s.split(",")
        [name.to_s, weight&.to_i]
      end
    end

    def middleware
      defined?(::Sidekiq) ? Kiq.config.server_middleware.map { |entry| entry.klass.to_s } : []
    end

    def classes
      return [] unless defined?(::Sidekiq::Worker) || defined?(::ActiveJob::Base)

      ::Rails.application.eager_load! if defined?(::Rails.application) && ::Rails.application
      found = ObjectSpace.each_object(Class).select { |one| one.name && job?(one) && !WRAPPERS.include?(one.name) }
      found.sort_by(&:name).map { |one| described(one) }
    end

    def job?(one)
      (defined?(::Sidekiq::Worker) && one.include?(::Sidekiq::Worker)) || (defined?(::ActiveJob::Base) && one < ::ActiveJob::Base)
    end

    def described(one)
      options = one.respond_to?(:get_sidekiq_options) ? one.get_sidekiq_options : {}
      queue = one.respond_to?(:queue_name) ? queue_of_active_job(one) : options["queue"]
      hooks = %i[sidekiq_retry_in_block sidekiq_retries_exhausted_block].select { |name| one.respond_to?(name) && one.public_send(name) }
      plain = options.reject { |name, _| %w[queue pool].include?(name) }.transform_values { |value| plain(value) }
      { name: one.name, queue: queue&.to_s, options: plain, hooks: hooks.map { |name| name.to_s.delete_suffix("_block") } }
    end

    # A block may choose it by arguments, which are not known here.
    def queue_of_active_job(one)
      one.new.queue_name
    rescue StandardError
      nil
    end

    def plain(value)
      [String, Numeric, TrueClass, FalseClass, NilClass, Array, Hash].any? { |type| value.is_a?(type) } ? value : value.to_s
    end

    def cron
      [*sidekiq_cron, *scheduler].map(&:compact)
    end

    # As sidekiq-cron has them in Redis.
    def sidekiq_cron
      return [] unless defined?(::Sidekiq::Cron::Job)

      Sidekiq::Cron::Job.all.map do |entry|
        told = entry.to_hash
        { name: entry.name, schedule: entry.cron, class: entry.klass.to_s, queue: told[:message] && JSON.parse(told[:message])["queue"],
          args: JSON.parse(told[:args]), enabled: entry.status != "disabled", date_as_argument: told[:date_as_argument] == true,
          time_zone: local_zone }
      end
    rescue StandardError => error
      raise Unusable, "cannot read the entries of sidekiq-cron from Redis: #{error.message}"
    end

    def local_zone
      defined?(::EtOrbi) ? ::EtOrbi.get_tzone(:local)&.name : ENV["TZ"]
    end

    # As sidekiq-scheduler has them in sidekiq.yml.
    def scheduler
      settings = @application.settings
      schedule = settings.dig(:scheduler, :schedule) || settings[:schedule] || {}
      schedule.map do |name, entry|
        times = entry.slice(:cron, :every, :in, :at, :interval)
        { name: name.to_s, schedule: (entry[:cron] if entry[:cron].is_a?(String)), times: times.to_s,
          class: (entry[:class] || name).to_s, queue: entry[:queue]&.to_s, args: Array(entry[:args]),
          enabled: entry.fetch(:enabled, true), time_zone: local_zone }
      end
    end

    def lowkiq
      return unless defined?(::Lowkiq::Worker)

      found = [*(Lowkiq.workers if Lowkiq.respond_to?(:workers))]
      found = ObjectSpace.each_object(Module).select { |one| one.name && one.singleton_class.include?(::Lowkiq::Worker) } if found.empty?
      workers = found.sort_by(&:name).map do |one|
        { name: one.name, queue: one.queue_name, shards_count: one.shards_count, batch_size: one.batch_size,
          max_retry_count: one.max_retry_count }
      end
      { threads_per_node: Lowkiq.threads_per_node, workers: workers }
    end
  end

  def self.main(arguments)
    options = Options.of(arguments)
    out = Seriatim::ProcessWorker.take_stdout
    application = Application.new(options)
    application.load if options.require
    return out.puts(JSON.pretty_generate(Description.new(options, application).to_h)) if options.describe

    application.serving { application.worker(out).run }
  rescue Unusable => error
    abort("seriatim_worker.rb: #{error.message}")
  end
end

SeriatimWorker.main(ARGV) if $PROGRAM_NAME == __FILE__
