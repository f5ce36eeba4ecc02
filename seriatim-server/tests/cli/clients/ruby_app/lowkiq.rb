# An application with a module of Lowkiq's. The gem is no package: this is its public interface, as far as workers use it.

module Lowkiq
  class << self
    attr_accessor :server_middlewares, :on_server_init, :format_error, :load_payload, :threads_per_node, :workers

    # The first middleware is the outermost.
    def server_wrapper
      lambda do |worker, batch, &perform|
        chain = server_middlewares.reverse.inject(perform) do |inner, middleware|
          -> { middleware.call(worker, batch, &inner) }
        end
        chain.call
      end
    end
  end

  self.server_middlewares = []
  self.on_server_init = -> {}
  self.format_error = ->(error) { error.message }
  self.load_payload = Marshal.method(:load)
  self.threads_per_node = 5
  self.workers = []

  module Worker
    attr_accessor :shards_count, :batch_size, :max_retry_count, :queue_name

    def self.extended(worker)
      worker.shards_count, worker.batch_size, worker.max_retry_count, worker.queue_name = 5, 1, 25, worker.name
    end

    def retry_in(count)
      count**4 + 15
    end

    def retries_exhausted(batch); end
  end
end

def seen(what)
  File.open("seen", "a") { |file| file.write("#{what}\n") }
end

Lowkiq.on_server_init = -> { seen("init with #{Lowkiq.threads_per_node} threads") }
Lowkiq.server_middlewares << lambda do |worker, batch, &block|
  seen("middleware #{worker} #{batch.keys.sort}")
  block.call
end

module Shop
  module Sync
    extend Lowkiq::Worker
    self.batch_size = 10
    self.max_retry_count = 2

    def self.retry_in(_count)
      raise "no wait is known" if File.exist?("no-wait")

      0.5
    end

    def self.retries_exhausted(batch)
      batch.each { |job| seen("exhausted #{job[:id]} #{job[:payloads]} #{job[:error]}") }
    end

    def self.perform(batch)
      batch.sort.each { |id, payloads| seen("perform #{id} #{payloads}") }
      sleep 0.01 until File.exist?("go") || batch.values.flatten.none?("wait")
      raise "caf\xE9".b if batch.values.flatten.include?("bytes")
      raise "told to fail" if batch.values.flatten.include?("fail")
    end
  end
end

Lowkiq.workers = [Shop::Sync]

# As version 1.1 is.
Lowkiq.singleton_class.undef_method(:format_error) if ENV["LOWKIQ_OLD"]
