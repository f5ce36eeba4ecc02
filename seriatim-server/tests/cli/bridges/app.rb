# An application with Sidekiq: producer, and (loaded by Sidekiq itself) server.
#
# ruby app.rb LINES: each line of stdin is a command; it answers with a line on stdout when it is done.
require "sidekiq"
require "json"

redis = { url: ENV.fetch("SIDEKIQ_REDIS") }
redis[:namespace] = ENV["SIDEKIQ_NAMESPACE"] if ENV["SIDEKIQ_NAMESPACE"]
Sidekiq.configure_client { |config| config.redis = redis }
Sidekiq.configure_server { |config| config.redis = redis }
Sidekiq.logger.level = Logger::ERROR

class OrderSync
  include Sidekiq::Worker
  sidekiq_options queue: "critical"

  def perform(*) = raise("runs in Seriatim only")
end

class Mail
  include Sidekiq::Worker

  def perform(number)
    File.open(ENV.fetch("RAN"), "a") { |file| file.write("#{number}\n") }
  end
end

class Fails
  include Sidekiq::Worker
  sidekiq_options retry: 5

  def perform(*) = raise("on purpose")
end

class Dies
  include Sidekiq::Worker
  sidekiq_options retry: 0

  def perform(*) = raise("hopeless")
end

# Commands of the tests.
module Commands
  @number = 0

  module_function

  # Order updates with numbers that grow, over so many keys; one call each.
  def orders(count, keys)
    Integer(count).times do
      OrderSync.perform_async("k#{@number % Integer(keys)}", @number)
      @number += 1
    end
  end

  # The same in bulk.
  def bulk(count, keys)
    all = Array.new(Integer(count)) { |i| ["k#{(@number + i) % Integer(keys)}", @number + i] }
    @number += all.size
    Sidekiq::Client.push_bulk("class" => OrderSync, "args" => all)
  end

  def mails(count)
    Integer(count).times do
      Mail.perform_async(@number)
      @number += 1
    end
  end

  def many_mails(count)
    Sidekiq::Client.push_bulk("class" => Mail, "args" => Array.new(Integer(count)) { |i| [@number + i] })
    @number += Integer(count)
  end

  # One id again and again.
  def again(count)
    Integer(count).times { Mail.set(jid: "c0ffee").perform_async(7) }
    Integer(count).times do
      Sidekiq::Client.push("class" => Mail, "args" => [7], "jid" => "b4a577edbccf1d805744efa9")
    end
  end

  def later(seconds, number)
    Mail.perform_in(Float(seconds), Integer(number))
  end

  # One that is tried again, and one that is not.
  def failing
    Fails.perform_async(7)
    Dies.perform_async(8)
  end

  def keyless
    OrderSync.perform_async(nil, 0)
  end
end

if $PROGRAM_NAME == __FILE__
  $stdin.each_line do |line|
    name, *arguments = line.split
    Commands.public_send(name, *arguments)
    $stdout.puts("done")
    $stdout.flush
  end
end
