# The public interface of Lowkiq, as far as workers use it.

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
