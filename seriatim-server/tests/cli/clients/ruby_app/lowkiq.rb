# An application with a module of Lowkiq's. The gem is no package: LOWKIQ_LIB names the folder `lib` of its source; without it
# its interface stands in.
if ENV["LOWKIQ_LIB"]
  $LOAD_PATH.unshift(ENV["LOWKIQ_LIB"])
  require "lowkiq"
else
  require_relative "lowkiq_stub"
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

Lowkiq.workers = [Shop::Sync] if Lowkiq.respond_to?(:workers=)

# As version 1.1 is.
Lowkiq.singleton_class.undef_method(:format_error) if ENV["LOWKIQ_OLD"] && Lowkiq.respond_to?(:format_error)
