# In place of the commands as they were seen, the gem itself: LOWKIQ_LIB names the folder `lib` of its source.
$LOAD_PATH.unshift(ENV.fetch("LOWKIQ_LIB"))
require "lowkiq"

# The commands dump payloads themselves, and some of them wrongly.
Lowkiq.dump_payload = Lowkiq.load_payload = ->(payload) { payload }
Lowkiq.redis = -> { Redis.new(url: ENV.fetch("SIDEKIQ_REDIS")) }
Lowkiq.server_middlewares = []

module Shop
  module Sync
    extend Lowkiq::Worker
    self.shards_count = SHARDS
  end
end

# As its server begins.
Lowkiq::Script.load!(REDIS)
GEM_QUEUE = Shop::Sync.client_queue

# Before version 1.1 its times are whole seconds.
def write(_redis, id, payload, score, perform_in = nil)
  Shop::Sync.perform_async([{ id: id, payload: payload, score: score, perform_in: perform_in }.compact])
end

module Commands
  module_function

  def failed(id, retry_count)
    payloads = [[dump(["first", id]), 1], [dump(["second", id]), 2]]
    GEM_QUEUE.push_back([{ id: id, retry_count: Integer(retry_count), payloads: payloads, error: "boom ü: #{id}" }])
  end

  def died(id, seconds)
    payloads = [[dump(["first", id]), 1.5], [dump(["second", id]), 2.5]]
    GEM_QUEUE.push_to_morgue([{ id: id, payloads: payloads, error: "hopeless: #{id}" }])
    # As if that had been earlier.
    REDIS.zadd(key("morgue:all_ids_scored_by_updated_at"), Time.now.to_f - Float(seconds), id)
  end

  def take(id)
    taken = GEM_QUEUE.pop(Zlib.crc32(id) % SHARDS, limit: 1).map { |job| job[:id] }
    abort("#{taken} was taken, not #{id}") unless taken == [id]
  end

  def restore
    SHARDS.times do |shard|
      data = GEM_QUEUE.processing_data(shard)
      GEM_QUEUE.push_back(data)
      GEM_QUEUE.ack(shard, data)
    end
  end
end
