# Writes what Lowkiq 1.2 writes into Redis: the gem is no package, so these are its commands, as they were seen.
#
# ruby lowkiq_app.rb: each line of stdin is a command; it answers with a line on stdout when it is done.
require "redis"
require "zlib"

REDIS = Redis.new(url: ENV.fetch("SIDEKIQ_REDIS"))
QUEUE = "Shop::Sync".freeze
SHARDS = 24
SETS = %w[all_ids_scored_by_perfrom_in all_ids_scored_by_retry_count].freeze
HASHES = %w[ids_with_perform_in ids_with_retry_count].freeze

Order = Struct.new(:id)

def key(*parts)
  ["lowkiq:A:v1", QUEUE, *parts].join(":")
end

# What the client does, for one payload.
def write(redis, id, payload, score, perform_in = Time.now.to_f)
  redis.zadd(key("all_ids_lex"), 0, id)
  redis.zadd(key("all_ids_scored_by_perfrom_in"), perform_in, id, nx: true)
  redis.zadd(key("all_ids_scored_by_retry_count"), -1, id, nx: true)
  redis.zadd(key("ids_scored_by_perform_in", Zlib.crc32(id) % SHARDS), perform_in, id, nx: true)
  redis.zadd(key("payloads", id), score, payload, nx: true)
end

def dump(payload)
  Marshal.dump(payload)
end

# Commands of the tests.
module Commands
  @number = 0

  module_function

  # So many ids, each with so many payloads, whose scores grow.
  def push(ids, payloads)
    Integer(ids).times.each_slice(100) do |some|
      REDIS.multi do |redis|
        some.product(Array.new(Integer(payloads)) { |i| i }).each do |id, i|
          write(redis, "id-#{id}", dump({ id: id, "number" => i, "text" => "ü" }), i + 0.125)
        end
      end
    end
  end

  # Numbers that grow, over so many ids.
  def numbers(count, ids)
    Integer(count).times.each_slice(50) do |some|
      REDIS.multi do |redis|
        some.each do
          write(redis, "k#{@number % Integer(ids)}", dump(["k#{@number % Integer(ids)}", @number]), @number)
          @number += 1
        end
      end
    end
  end

  # Payloads that are no plain data, or not whole.
  def foreign
    write(REDIS, "time", dump(Time.at(0)), 1)
    write(REDIS, "order", dump(Order.new(7)), 1)
    write(REDIS, "cut", "\x04\x08[\x07i\x06", 1)
    write(REDIS, "plain", dump(7), 1)
  end

  # Each byte becomes six in JSON.
  def long(payloads)
    Integer(payloads).times { |i| write(REDIS, "long", dump("\u0001" * (680_000 + i)), i) }
  end

  def later(seconds, id)
    write(REDIS, id, dump(id), 1, Time.now.to_f + Float(seconds))
  end

  # What a server does with an id that has failed so often.
  def failed(id, retry_count)
    write(REDIS, id, dump(["first", id]), 1)
    write(REDIS, id, dump(["second", id]), 2)
    REDIS.zadd(key("all_ids_scored_by_retry_count"), retry_count, id)
    REDIS.hset(key("errors"), id, "boom ü: #{id}")
  end

  # What a server does with an id that has failed too often.
  def died(id, seconds)
    REDIS.multi do |redis|
      redis.zadd(key("morgue:all_ids_lex"), 0, id)
      redis.zadd(key("morgue:all_ids_scored_by_updated_at"), Time.now.to_f - Float(seconds), id)
      redis.zadd(key("morgue:payloads", id), [[1.5, dump(["first", id])], [2.5, dump(["second", id])]], nx: true)
      redis.hset(key("morgue:errors"), id, "hopeless: #{id}")
    end
  end

  # What a server does with an id that it begins to work on.
  def take(id)
    shard = Zlib.crc32(id) % SHARDS
    REDIS.hset(key("processing_length_by_shard"), shard, 1)
    REDIS.zrem(key("all_ids_lex"), id)
    REDIS.zrem(key("ids_scored_by_perform_in", shard), id)
    SETS.zip(HASHES).each do |from, to|
      REDIS.hset(key("processing", to, shard), id, REDIS.zscore(key(from), id))
      REDIS.zrem(key(from), id)
    end
    REDIS.rename(key("payloads", id), key("processing:payloads", id))
  end

  # What a server does when it starts: all that is with a server goes back.
  def restore
    SHARDS.times do |shard|
      due, retries = HASHES.map { |hash| REDIS.hgetall(key("processing", hash, shard)) }
      due.each do |id, perform_in|
        REDIS.zadd(key("all_ids_lex"), 0, id)
        REDIS.zadd(key("all_ids_scored_by_perfrom_in"), perform_in.to_f, id)
        REDIS.zadd(key("all_ids_scored_by_retry_count"), retries[id].to_f, id)
        REDIS.zadd(key("ids_scored_by_perform_in", shard), perform_in.to_f, id)
        held = REDIS.zrange(key("processing:payloads", id), 0, -1, with_scores: true)
        REDIS.zadd(key("payloads", id), held.map(&:reverse), nx: true) if held.any?
        REDIS.del(key("processing:payloads", id))
      end
      HASHES.each { |hash| REDIS.del(key("processing", hash, shard)) }
      REDIS.hdel(key("processing_length_by_shard"), shard)
    end
  end
end

require_relative "lowkiq_gem" if ENV["LOWKIQ_LIB"]

$stdin.each_line do |line|
  name, *arguments = line.split
  Commands.public_send(name, *arguments)
  $stdout.puts("done")
  $stdout.flush
end
