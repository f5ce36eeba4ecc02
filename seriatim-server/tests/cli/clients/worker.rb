# What the tests of the clients run: pushes, a remote worker or a process worker in Ruby.

require_relative "../../../../clients/ruby/seriatim"

HANDLE = lambda do |lane|
  lane.jobs.each_with_index do |job, number|
    told = job["payload"]
    File.open("seen", "a") { |seen| seen.write("#{lane.key} #{told["name"]} #{lane.attempt}\n") }
    lane.progress({ percent: 40 })
    in_steps(lane, told["do"])
    raise "told to fail" if told["do"] == "fail" && lane.attempt == 1
    return Seriatim.snooze(0.1) if told["do"] == "snooze" && !File.exist?("go")
    return Seriatim.bury("told to bury", done: number) if told["do"] == "bury"
    raise "caf\xE9".b if told["do"] == "bytes"

    while %w[wait release].include?(told["do"]) && !File.exist?("go")
      return Seriatim.cancel("as asked") if lane.cancelled?(job)
      return Seriatim.release if told["do"] == "release" && lane.stopping?

      sleep 0.01
    end
    return Seriatim.done({ sum: 6 }) if told["do"] == "return"
    return Seriatim.done("x" * 70_000) if told["do"] == "long"
    return 42 if told["do"] == "plain"
    return { outcome: "explode" } if told["do"] == "odd"
  end
  puts "done: #{lane.key}"
end

def in_steps(lane, told)
  note = lambda do |what|
    File.open("seen", "a") { |seen| seen.write("#{lane.key} #{what} #{lane.attempt}\n") }
    { noted: what }
  end
  if %w[steps crash].include?(told)
    one = lane.step("one") { note.call("one") }
    exit!(9) if told == "crash" && lane.attempt == 1
    raise "told to fail" if lane.attempt == 1

    lane.step("two") { note.call("two after #{one["noted"]}") }
  end
  return unless told == "stepping"

  1000.times do |number|
    lane.step(number.to_s) { note.call("step") if number.zero? }
    sleep 0.05
  end
end

def tell(what)
  $stdout.puts(JSON.generate(what))
  $stdout.flush
end

def push(url)
  client = Seriatim::Client.new(url, retry_for: 60)
  once = { key: "k", idempotency_key: "once" }
  tell(client.push("orders", { name: 1 }, **once)["status"])
  tell(client.push("orders", { name: 1 }, **once)["status"])
  jobs = client.push_all("orders", [2, 3].map { |n| { key: "k", payload: { name: n }, delay: "1h", priority: 3 } })
  tell(jobs.map { |job| client.job(job["job_id"])["priority"] })
  tell(client.cancel(jobs[1]["job_id"])["status"])
  tell(client.push_and_wait("orders", { name: 4 }, wait: 0.05, key: "k", delay: "1h")["status"])
  tell(client.job(jobs[1]["job_id"], wait: 60)["status"])
  nobody = Seriatim::Client.new("http://127.0.0.1:2", retry_for: 0.2)
  [-> { client.push("orders", {}, kee: "k") }, -> { nobody.job("1") }].each do |wrong|
    wrong.call
  rescue Seriatim::Problem => problem
    tell([problem.status, problem.field])
  rescue Seriatim::Unreachable => error
    tell([error.sent])
  end
end

def options
  [0, -1, "4", 1001].each do |wrong|
    Seriatim::RemoteWorker.new(Seriatim::Client.new, "orders", concurrency: wrong, &HANDLE)
  rescue ArgumentError => error
    tell(error.message)
  end
end

# A server that hands over these lanes one by one, and hears nothing of them until they end. Its first so many answers to an
# end are that the lane is busy.
class Outage
  def initialize(names, lease, busy: 0)
    @names, @lease, @busy = names, lease, busy
    @worker = Seriatim::RemoteWorker.new(self, "orders", lease: lease) { |lane| doubt(lane) }
    @worker.run
  end

  def call(_method, path, body, **)
    return { "lanes" => following(body) } if path == "/work/claim"

    if path == "/work/settle"
      tell([@soon, *body[:results][0].values_at(:outcome, :done)])
      @busy -= 1
      return { "results" => [{ "status" => @busy < 0 ? "ok" : "busy" }] }
    end
    raise Seriatim::Unreachable.new(path, IOError.new("away"), true) if @lease < 1

    { "cancel" => [{ "lane" => "1-0-1", "job_ids" => %w[a b] }], "lost" => [], "steps" => [] }
  end

  private

  def following(body)
    @soon = body[:wait_ms] <= @lease * 1000 / 3
    @worker.stop if @names.empty?
    jobs = [{ "job_id" => "a" }, { "job_id" => "b" }]
    fields = { "lane" => "1-0-1", "token" => 1, "secret" => "s", "crashes" => 0, "jobs" => jobs }
    @names.shift(1).map { |key| { **fields, "key" => key } }
  end

  def doubt(lane)
    sleep(0.001) until lane.key == "named" || lane.cancelled?
    lane.step("one") { nil } unless lane.key == "asks"
    Seriatim.cancel("as asked", done: 1) if lane.cancelled?(lane.jobs[1])
  end
end

# A server that is away when its lanes end, and is back for the last words of the worker: it takes one at a time.
class Away
  def initialize(count)
    fields = { "token" => 1, "secret" => "s", "key" => "k", "crashes" => 0, "jobs" => [{ "job_id" => "a" }] }
    @lanes = Array.new(count) { |number| { "lane" => "1-0-#{number}", **fields } }
    @waiting, @left, @back = [], count, Queue.new
    @worker = Seriatim::RemoteWorker.new(self, "orders", concurrency: count, stop_timeout: 0) { nil }
    @worker.run
  end

  def call(_method, path, body, retry_for:, **)
    return { "lanes" => @lanes.shift(@left) } if path == "/work/claim"

    if retry_for == Float::INFINITY
      @worker.stop if @waiting.push(body).size == @left
      @back.pop
      return { "results" => [{ "status" => "stale" }] }
    end
    raise Seriatim::Problem.new(path, 413, {}) if body[:results].size > 1

    tell(body[:results][0][:outcome])
    @back.close if (@left -= 1).zero?
    { "results" => [{ "status" => "ok" }] }
  end
end

# A server that refuses the end of its lane with these statuses, one after the other.
class Refusing
  def initialize(statuses)
    fields = { "lane" => "1-0-1", "token" => 1, "secret" => "s", "key" => "k", "crashes" => 0 }
    @statuses, @lanes = statuses, [{ **fields, "jobs" => [{ "job_id" => "a" }] }]
    @worker = Seriatim::RemoteWorker.new(self, "orders") { nil }
    @worker.run
  end

  def call(_method, path, body, **)
    @worker.stop if path == "/work/claim" && @lanes.empty?
    return { "lanes" => @lanes.shift(1) } if path == "/work/claim"
    return { "cancel" => [], "lost" => [] } if path == "/work/heartbeat"

    tell(body[:results][0].values_at(:outcome, :error))
    raise Seriatim::Problem.new(path, @statuses.shift, { "title" => "refused" }, 0) if @statuses.any?

    { "results" => [{ "status" => "ok" }] }
  end
end

# A lock of a worker whose lanes end as soon as it is open.
class Fleeting
  def initialize(running)
    @running = running
  end

  def synchronize
    yield.tap { @running.clear }
  end
end

def fleeting
  client = Object.new
  client.define_singleton_method(:call) do |_method, _path, body, **|
    Kernel.puts(JSON.generate(body[:results]))
    { "results" => [{ "status" => "stale" }] }
  end
  worker = Seriatim::RemoteWorker.new(client, "orders") { nil }
  running = worker.instance_variable_get(:@running)
  lane = Seriatim::Lane.new({ "lane" => "1-0-1", "key" => "k" }, nil, nil)
  running[lane] = { lane: "1-0-1", token: 1, secret: "s" }
  worker.instance_variable_set(:@lock, Fleeting.new(running))
  worker.send(:settle, { lane => Seriatim.release }, 1)
end

# A client whose first heartbeat cannot be written.
def odd
  beats, client = 0, Object.new
  client.define_singleton_method(:call) do |*, **|
    raise JSON::NestingError, "too deep" if (beats += 1) == 1

    { "cancel" => [], "lost" => [] }
  end
  worker = Seriatim::RemoteWorker.new(client, "orders") { nil }
  lane = Seriatim::Lane.new({ "lane" => "1-0-1" }, nil, nil)
  worker.instance_variable_get(:@running)[lane] = { lane: "1-0-1", token: 1, secret: "s" }
  2.times { worker.send(:beat) }
  tell(beats)
end

# A server that refuses progress with this status. Of two lanes, one reports too much, and then less.
def strict(status)
  client = Object.new
  client.define_singleton_method(:call) do |_method, path, body, **|
    reported = body[:claims].map { |claim| claim.key?(:progress) }
    tell(reported)
    raise Seriatim::Problem.new(path, status, { "field" => "claims[0].progress" }) if reported.any?

    { "cancel" => [], "lost" => [] }
  end
  worker = Seriatim::RemoteWorker.new(client, "orders") { nil }
  claims = Array.new(2) { |number| { lane: "1-0-#{number}", token: 1, secret: "s" } }
  report = ->(progress) { claims[0][:progress] = progress }
  lanes = claims.map { |claim| Seriatim::Lane.new({ "lane" => claim[:lane] }, report, nil) }
  worker.instance_variable_get(:@running).update(lanes.zip(claims).to_h)
  begin
    lanes[0].progress("x" * 65_535)
  rescue ArgumentError => error
    tell(error.message)
  end
  lanes[0].progress("x" * 65_534)
  worker.send(:beat)
end

case ARGV[0]
when "push" then push(ARGV[1])
when "redirected"
  begin
    Seriatim::Client.new(ARGV[1], token: "secret", retry_for: 0).push("orders", {})
  rescue Seriatim::Problem => problem
    tell(problem.status)
  end
when "options" then options
when "fleeting" then fleeting
when "odd" then odd
when "strict" then [400, 413, 503].each { |status| strict(status) }
when "doubt"
  Outage.new(%w[asks steps], 0.03)
  Outage.new(%w[named], 600)
when "busy" then Outage.new(%w[named], 600, busy: 1200)
when "away" then Away.new(1)
when "apart" then Away.new(2)
when "refused" then Refusing.new([401, 403, 413])
when "process" then Seriatim::ProcessWorker.new(&HANDLE).run
else
  client = Seriatim::Client.new(ARGV[1])
  Seriatim::RemoteWorker.new(client, "orders", concurrency: 2, lease: ARGV[2].to_f, wait: 1, &HANDLE).run
end
