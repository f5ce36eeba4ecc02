# Client of Seriatim: push jobs, and work on them over HTTP or as a program of `seriatim serve`.
# Needs the standard library only (Ruby 3.0 or newer); copy the file. MIT OR Apache-2.0.

require "json"
require "net/http"
require "set"
require "socket"
require "uri"

module Seriatim
  PAUSE_MIN_S = 0.1
  PAUSE_MAX_S = 5.0
  HEARTBEAT_MAX_S = 5.0
  # Of one claim, for the server.
  LANES_MAX = 1000
  # For the server and the engine.
  PROGRESS_BYTES_MAX = 65_536
  RELEASE_S = 2

  # A request was not carried out, or nobody knows whether it was.
  class Error < StandardError; end

  # The server refused the request: `status`, `detail`, and `field`, the name of what is wrong, if there is one.
  class Problem < Error
    attr_reader :status, :detail, :field, :document, :retry_after

    def initialize(request, status, document, retry_after = nil)
      @status, @document, @retry_after = status, document, retry_after
      @detail, @field = document.values_at("detail", "field")
      place = @field && "`#{@field}`: "
      super("#{request}: #{status} #{document["title"]}: #{place}#{@detail}")
    end
  end

  # No answer. `sent` is false if the request did not reach the server; otherwise it may have been carried out.
  class Unreachable < Error
    attr_reader :sent

    def initialize(request, cause, sent)
      @sent = sent
      super("#{request}: no answer: #{cause.message}")
    end
  end

  # Requests to the HTTP API. `token` defaults to the variable SERIATIM_TOKEN. `timeout` limits one attempt of a
  # request, and `retry_for` is how long a request that is safe to repeat is repeated, both in seconds.
  class Client
    def initialize(url = "http://127.0.0.1:7117", token: ENV["SERIATIM_TOKEN"], timeout: 10, retry_for: 10)
      raise ArgumentError, "url is #{url.inspect}: it must start with http:// or https://" unless url.match?(%r{\Ahttps?://})

      @url = "#{url.chomp("/")}/api/v1"
      @token, @timeout, @retry_for = token, timeout, retry_for
    end

    # Pushes one job. Fields: `key`, `score`, `delay`, `run_at`, `priority`, `idempotency_key` and the others of
    # docs/http.md ("Pushing"); the server refuses unknown ones.
    def push(queue, payload = nil, **fields)
      push_all(queue, [{ payload: payload, **fields }]).first
    end

    # Pushes all jobs, hashes with `payload` and fields, or none.
    def push_all(queue, jobs)
      # Repeated after an answer that was lost, jobs without these keys would be pushed twice.
      safe = jobs.all? { |job| job[:idempotency_key] || job["idempotency_key"] }
      answer = call("POST", "/queues/#{quote(queue)}/jobs", jobs, safe: safe)
      warn("queue #{queue.inspect} did not exist and was created") if answer["created"]
      answer["jobs"]
    end

    # Pushes one job, waits until it has ended, but no longer than `wait` seconds (at most 60), and returns it as `job` does,
    # with its `status` and `error`, and its `result` if there is one. The queue must keep finished jobs (`retain_completed`).
    def push_and_wait(queue, payload = nil, wait: 20, **fields)
      path = "/queues/#{quote(queue)}/jobs?wait=#{(wait * 1000).round}ms"
      safe = !fields[:idempotency_key].nil?
      call("POST", path, { payload: payload, **fields }, safe: safe, timeout: @timeout + wait)["job"]
    end

    # All that is known of a job: now, or when it has ended, but no later than after `wait` seconds (at most 60).
    def job(job_id, wait: 0)
      query = wait.zero? ? "" : "?wait=#{(wait * 1000).round}ms"
      call("GET", "/jobs/#{quote(job_id)}#{query}", safe: true, timeout: @timeout + wait)
    end

    # Cancels a waiting job; the handler of a running one is told.
    def cancel(job_id)
      call("POST", "/jobs/#{quote(job_id)}/cancel", safe: true)
    end

    # Any request of the API, as `call("GET", "/queues")`. `safe`: it may be repeated although it may have been
    # carried out.
    def call(method, path, body = nil, safe: false, timeout: @timeout, retry_for: @retry_for)
      deadline = Seriatim.now + retry_for
      attempt = 0
      begin
        once(method, path, body, timeout)
      rescue Error => error
        pause = Seriatim.pause_after(error, attempt)
        raise if !Seriatim.may_repeat?(error, safe) || Seriatim.now + pause > deadline

        sleep(pause)
        attempt += 1
        retry
      end
    end

    private

    def once(method, path, body, timeout)
      uri, what = URI(@url + path), "#{method} #{@url}#{path}"
      headers = { "Content-Type" => "application/json" }
      headers["Authorization"] = "Bearer #{@token}" if @token
      request = Net::HTTPGenericRequest.new(method, !body.nil?, true, uri, headers)
      request.body = JSON.generate(body) if body
      answer = send_request(request, uri, timeout, what)
      document = parse(answer.body)
      if answer.is_a?(Net::HTTPSuccess)
        return document if document

        raise Unreachable.new(what, IOError.new("the answer is not JSON"), true)
      end
      # A proxy answers errors with a page of its own.
      document = { "title" => answer.message, "detail" => answer.body.to_s[0, 200] } unless document.is_a?(Hash)
      asked = answer["Retry-After"]
      raise Problem.new(what, answer.code.to_i, document, asked && Float(asked, exception: false))
    end

    def send_request(request, uri, timeout, what)
      http, sent = Net::HTTP.new(uri.host, uri.port), false
      http.use_ssl = uri.scheme == "https"
      http.open_timeout = http.read_timeout = http.write_timeout = timeout
      http.max_retries = 0
      http.start do
        sent = true
        http.request(request)
      end
    rescue StandardError => error
      raise Unreachable.new(what, error, sent)
    end

    def parse(text)
      JSON.parse(text.to_s)
    rescue JSON::ParserError
      nil
    end

    def quote(text)
      URI.encode_www_form_component(text).gsub("+", "%20")
    end
  end

  # What a handler makes of a lane. The first `done` jobs are done; the outcome is the next one's.
  class << self
    # The lane is done; so is whatever is not an outcome. `result`, any JSON value of at most 64 KiB, is for those who wait
    # for its jobs.
    def done(result = nil)
      result.nil? ? { outcome: "done" } : { outcome: "done", result: result }
    end

    # A failure: again after `after` seconds, or after the queue's backoff. An exception does the same.
    def retry(error, after: nil, done: 0)
      { outcome: "retry", error: text_of(error), retry_in: after, done: done }
    end

    # Again after `after` seconds; not a failure.
    def snooze(after, done: 0)
      { outcome: "snooze", retry_in: after, done: done }
    end

    # To the morgue, the dead-letter queue.
    def bury(error, done: 0)
      { outcome: "bury", error: text_of(error), done: done }
    end

    # Cancelled.
    def cancel(reason = "", done: 0)
      { outcome: "cancel", error: text_of(reason), done: done }
    end

    # Back to the queue, uncounted. Remote workers only: use it when `lane.stopping?`.
    def release(done: 0)
      { outcome: "release", done: done }
    end

    # For the classes of this file.

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # Whether to send a request again: if it was certainly not carried out, or if a second time does no harm.
    def may_repeat?(error, safe)
      return error.status == 429 || (safe && error.status >= 500) if error.is_a?(Problem)

      safe || !error.sent
    end

    # What the server asked for, otherwise longer each time; a random part keeps clients apart.
    def pause_after(error, attempt)
      asked = error.retry_after if error.is_a?(Problem)
      (asked || [PAUSE_MIN_S * 2**[attempt, 16].min, PAUSE_MAX_S].min) * rand(1.0..1.5)
    end

    # Runs the handler. An exception is a retry with its text; also SystemExit, which would end the thread only.
    def outcome_of(handle, lane)
      answer = handle.call(lane)
      return done unless answer.is_a?(Hash) && (answer.key?(:outcome) || answer.key?("outcome"))

      JSON.parse(JSON.generate(answer), symbolize_names: true)
    rescue Stopped => stop
      stop.outcome
    rescue Exception => error # rubocop:disable Lint/RescueException
      failure("the handler of #{lane}", error)
    end

    def failure(what, error)
      warn("#{text_of(what)} failed: #{text_of(error.full_message(highlight: false))}")
      self.retry("#{text_of(error.class)}: #{text_of(error.message)}")
    end

    private

    # Messages of errors may have any bytes, and JSON only UTF-8.
    def text_of(error)
      text = error.to_s.dup
      text.force_encoding("UTF-8") if text.encoding == Encoding::BINARY
      text.encode("UTF-8", invalid: :replace, undef: :replace).scrub
    rescue EncodingError
      text.force_encoding("UTF-8").scrub
    end
  end

  # The answer to a step of a lane that is cancelled or lost.
  NOBODY = { "state" => "stop", "why" => "cancelled" }.freeze

  # The lane is cancelled, or its worker stops: ends the handler between two steps.
  class Stopped < StandardError
    attr_reader :outcome

    def initialize(why, name)
      super("#{why} before step #{name.inspect}")
      @outcome = why == "stopping" ? Seriatim.release : Seriatim.cancel(message)
    end
  end

  # The jobs of one key. `lane["field"]` has all fields of docs/workers.md ("The call").
  class Lane
    attr_writer :lost
    attr_accessor :ends_at

    def initialize(document, report, ask, stopping = -> { false })
      @document, @report, @ask, @stopping = document, report, ask, stopping
      @cancelled, @lost = Set.new, false
      # Whether `cancelled?` has said so although perhaps nobody cancelled anything.
      @doubted = false
      # When the claim ends unless it is extended: then another worker may have the lane.
      @ends_at = Float::INFINITY
    end

    # `jobs` are in order, hashes with "job_id", "score" and "payload". `token` only grows for a key: send it with your
    # writes, so that the receiver can refuse stale ones.
    %w[lane queue key token task attempt retry_count crashes max_retries first_attempt_at jobs].each do |name|
      define_method(name) { @document[name] }
    end

    def [](name)
      @document[name]
    end

    def payloads
      jobs.map { |job| job["payload"] }
    end

    # Whether `job` is cancelled; without `job`: whether all are. All are when the time is up or the claim is lost. From a
    # remote worker, `cancel` then only releases the lane.
    def cancelled?(job = nil)
      return @doubted = true if @lost || Seriatim.now > @ends_at

      (job ? [job] : jobs).all? { |one| @cancelled.include?(one["job_id"]) }
    end

    # Whether the remote worker stops. Finish within its `stop_timeout`, or answer with `Seriatim.release`.
    def stopping?
      @stopping.call
    end

    # Reports progress: any JSON value of at most 64 KiB, which replaces the one before.
    def progress(progress)
      text = JSON.generate(progress)
      if text.bytesize > PROGRESS_BYTES_MAX
        raise ArgumentError, "progress has #{text.bytesize} bytes as JSON; at most #{PROGRESS_BYTES_MAX} are kept"
      end

      @report.call(JSON.parse(text))
    end

    # Runs the block as a step and returns its result as JSON; if it ended in an earlier run, only returns the result.
    # Ends the handler if the lane is cancelled or the worker stops.
    def step(name)
      raise Stopped.new("cancelled", name) if cancelled?

      told = @ask.call(self, { name: name })
      raise Stopped.new(told["why"], name) if told["state"] == "stop"
      return told["result"] if told["state"] == "done"

      # As JSON gives it back: later runs see the same.
      result = JSON.parse(JSON.generate(yield))
      @ask.call(self, { name: name, done: true, result: result })
      result
    end

    def cancel_jobs(job_ids)
      @cancelled.merge(job_ids)
    end

    def lost?
      @lost
    end

    # For remote workers: a claim that only may be lost goes back. If nobody cancelled the jobs, they run again.
    def ended(outcome)
      @doubted && outcome[:outcome] == "cancel" ? Seriatim.release(done: outcome[:done] || 0) : outcome
    end

    def to_s
      "lane #{lane} (key #{key.inspect})"
    end
  end

  # Claims lanes over HTTP and gives each to the block, `concurrency` at a time, each in a thread.
  #
  # A claim lasts `lease` seconds from its last heartbeat. A claim request waits `wait` seconds for work (at most a third
  # of `lease`), and so does a stop. `stop_timeout` is how long handlers may run on after SIGTERM; then their lanes are
  # released. With `build`, it gets jobs that ask for this build too.
  class RemoteWorker
    def initialize(client, queues, concurrency: 1, lease: 60, wait: 5, stop_timeout: 25, name: nil, consumer_groups: nil,
      build: nil, &handle)
      unless concurrency.is_a?(Integer) && concurrency.between?(1, LANES_MAX)
        raise ArgumentError, "concurrency must be a whole number from 1 to #{LANES_MAX}, not #{concurrency.inspect}"
      end

      @client, @queues, @concurrency = client, Array(queues), concurrency
      @handle = handle || raise(ArgumentError, "give the handler as a block")
      @lease, @wait, @stop_timeout, @consumer_groups, @build = lease, wait, stop_timeout, consumer_groups, build
      @name = name || "#{Socket.gethostname}-#{Process.pid}"
      # Lanes in work, with their claims.
      @running, @lock, @beating = {}, Mutex.new, Mutex.new
      # Of those whose handler has ended.
      @outcomes = {}
      @stopping, @failures, @unknown = false, 0, []
      # Wakes `run`: a lane has ended, or the worker stops. Can be written in a signal handler.
      @mail, @post = IO.pipe
    end

    # Claims no more; `run` returns when the handlers have ended, or after `stop_timeout`.
    def stop
      @stopped_at = Seriatim.now
      @stopping = true
      wake
    end

    # Works until `stop`, SIGTERM or SIGINT (a second one ends the process). Raises Problem if the server refuses the
    # claims, as for a wrong token.
    def run
      restore = stop_on_signals
      pulse = Thread.new { beat while sleep([@lease / 3.0, HEARTBEAT_MAX_S].min) }
      begin
        take until @stopping
      rescue Error
        finish
        raise
      end
      finish
    ensure
      pulse&.kill
      restore&.call
    end

    private

    def stop_on_signals
      before = {}
      restore = -> { before.each { |name, handler| trap(name, handler || "DEFAULT") } }
      stopper = proc { restore.call; stop }
      %w[TERM INT].each { |name| before[name] = trap(name, stopper) }
      restore
    end

    def wake
      @post.write_nonblock(".", exception: false) # If it is full, it wakes anyway.
    end

    # Waits for mail, and takes all of it.
    def wait(timeout = nil)
      @mail.read_nonblock(4096, exception: false) if IO.select([@mail], nil, nil, timeout)
    end

    def lanes
      @lock.synchronize { @running.keys }
    end

    def take
      running = lanes
      # A lane that crashed before runs as the last one claimed: it would take others with it.
      return wait if running.size >= @concurrency || running.any? { |lane| lane.crashes.positive? }

      wait(0)
      sent_at = Seriatim.now
      # The time of the claim counts from `sent_at`.
      limit, wait_ms = @concurrency - running.size, ([@wait, @lease / 3.0].min * 1000).to_i
      body = { queues: @queues, consumer_groups: @consumer_groups, limit: limit, lease_ttl_sec: @lease, wait_ms: wait_ms }
      body[:build] = @build if @build
      answer = post("/work/claim", body, timeout: @wait + 10, retry_for: 0)
      @failures = 0
      tell_of_unknown(answer.fetch("unknown_queues", []))
      answer["lanes"].each { |document| start(document, sent_at) }
      heed(answer)
    rescue Error => error
      raise unless Seriatim.may_repeat?(error, true)

      warn("cannot claim, trying again: #{error.message}") if @failures.zero?
      wait(Seriatim.pause_after(error, @failures))
      @failures += 1
    end

    def tell_of_unknown(queues)
      warn("queues that do not exist (the first push creates them): #{queues.join(", ")}") if queues.any? && queues != @unknown
      @unknown = queues
    end

    def start(document, sent_at)
      claim = { lane: document["lane"], token: document["token"], secret: document.delete("secret") }
      lane = Lane.new(document, ->(progress) { claim[:progress] = progress }, method(:ask), -> { @stopping })
      lane.ends_at = sent_at + @lease
      @lock.synchronize do
        # If this worker has it already: that lease ended.
        @running.each_key { |older| older.lost = true if older.lane == lane.lane }
        @running[lane] = claim
      end
      Thread.new { perform(lane) }
    end

    def perform(lane)
      # What came with the last claim, during a stop, goes back.
      outcome = @stopping ? Seriatim.release : lane.ended(Seriatim.outcome_of(@handle, lane))
      @lock.synchronize { @outcomes[lane] = outcome }
      settle_one(lane, outcome)
    rescue Error => error
      warn("the result of #{lane} is lost, it runs again: #{error.message}")
    ensure
      @lock.synchronize { [@running, @outcomes].each { |map| map.delete(lane) } }
      wake
    end

    # A refused token may be known in a moment: tried again until this lease would end.
    def settle_one(lane, outcome)
      attempt, ends_at = 0, nil
      begin
        settle({ lane => outcome }, Float::INFINITY)
      rescue Problem => error
        pause = Seriatim.pause_after(error, attempt)
        ends_at ||= lane.ends_at
        raise if ![401, 403].include?(error.status) || Seriatim.now + pause > ends_at

        warn("cannot settle #{lane}, trying again: #{error.message}") if attempt.zero?
        sleep(pause)
        attempt += 1
        retry
      end
    end

    # After a refusal: half of them at a time; what is refused alone is a failure.
    def settle_apart(outcomes, refusal, retry_for)
      return outcomes.each_slice((outcomes.size + 1) / 2) { |half| settle(half.to_h, retry_for) } if outcomes.size > 1

      outcomes.each do |lane, outcome|
        # Without what it refused, which may be long.
        why = [refusal.field, refusal.detail || refusal.document["title"]].compact.join(": ")
        refused = "the server refused the outcome `#{outcome[:outcome]}`: #{why}"
        settle({ lane => Seriatim.retry(refused) }, retry_for, is_refusal: true)
      end
    end

    def settle(outcomes, retry_for, is_refusal: false)
      # Under one lock: a lane may end at any time.
      claims = @lock.synchronize { @running.slice(*outcomes.keys) }
      outcomes = outcomes.slice(*claims.keys)
      results = outcomes.map { |lane, outcome| { **proof(claims[lane]), **outcome } }
      # A second settle of a claim changes nothing: it is stale.
      begin
        answer = post("/work/settle", { results: results }, safe: true, retry_for: retry_for)
      rescue Problem => error
        raise if ![400, 413].include?(error.status) || is_refusal

        return settle_apart(outcomes, error, retry_for)
      end
      outcomes.keys.zip(answer["results"]) do |lane, result|
        warn("the claim of #{lane} was lost, or settled before") if result["status"] == "stale"
      end
      # The server waits with the answer while there are no others.
      busy = outcomes.keys.zip(answer["results"]).select { |_, result| result["status"] == "busy" }.map(&:first)
      settle(outcomes.slice(*busy), retry_for, is_refusal: is_refusal) if busy.any?
    end

    # Without progress. The secret proves that the claim is ours: do not log it.
    def proof(claim)
      claim.slice(:lane, :token, :secret)
    end

    def beat
      held = @lock.synchronize { @running.reject { |lane, _| lane.lost? } }
      keep(held) if held.any?
    end

    # Sends a heartbeat. If progress may be why it failed, it is sent again without: no lease must end for that.
    def keep(held)
      say(held, timeout: @lease / 3.0, retry_for: 0)
    rescue StandardError => error # Also of progress too deep to be written.
      warn("a heartbeat failed: #{error.message}")
      reported = held.values.select { |claim| claim.delete(:progress) }
      # A connection may break while a body is sent that is too large.
      perhaps = !error.is_a?(Problem) || [400, 413].include?(error.status)
      keep(held.transform_values { |claim| proof(claim) }) if reported.any? && perhaps
    end

    # Sends a heartbeat for these lanes, and heeds the answer. One at a time: the steps and the progress of a lane must not
    # overtake each other.
    def say(held, **options)
      @beating.synchronize do
        sent_at, claims = Seriatim.now, held.values.map(&:dup)
        answer = post("/work/heartbeat", { claims: claims, lease_ttl_sec: @lease }, safe: true, **options)
        held.values.zip(claims) { |claim, sent| claim.delete(:progress) if claim[:progress].equal?(sent[:progress]) }
        hear(held.keys, answer, sent_at)
        answer
      end
    end

    # Tells of a step with a heartbeat, whose answer says what to do.
    def ask(lane, step)
      claim = @lock.synchronize { @running[lane] }
      return NOBODY unless claim

      answer = say({ lane => { **claim, step: step } }, timeout: @lease / 3.0, retry_for: @lease)
      told = answer.fetch("steps", []).first
      return NOBODY if told.nil? || (!step[:done] && lane.cancelled?)

      told["state"] == "run" && @stopping ? { "state" => "stop", "why" => "stopping" } : told
    end

    # Ends if an operator asks for it. A worker that is to be quiet just gets no lanes.
    def heed(answer)
      return if answer["command"] != "stop" || @stopping

      warn("stopping: an operator asked for it")
      stop
    end

    def hear(lanes, answer, sent_at)
      heed(answer)
      lanes.each do |lane|
        lane.ends_at = sent_at + @lease
        lane.lost = true if answer["lost"].include?(lane.lane)
        answer["cancel"].each { |notice| lane.cancel_jobs(notice["job_ids"]) if notice["lane"] == lane.lane }
      end
    end

    def finish
      stop unless @stopping
      deadline = @stopped_at + @stop_timeout
      wait([deadline - Seriatim.now, 0].max) until lanes.empty? || Seriatim.now > deadline
      # Those that have ended: the server was away since then.
      ended = @lock.synchronize { @outcomes.dup }
      running = (lanes - ended.keys).to_h { |lane| [lane, Seriatim.release] }
      warn("released lanes that did not end in time: #{running.size}") if running.any?
      [running, ended].each { |left| settle(left, RELEASE_S) if left.any? }
    rescue Error => error
      warn("cannot release lanes: they run again when their leases end: #{error.message}")
    end

    def post(path, body, **options)
      @client.call("POST", path, { worker: @name, **body }, **options)
    end
  end

  # A program of `seriatim serve` (docs/workers.md, "Processes"). Gives each lane to the block; calls run in parallel, as
  # many as `concurrency` of the configuration allows, and the lanes of one call one after another.
  class ProcessWorker
    # Whatever else is printed, by this program or its children, goes to stderr, which Seriatim logs.
    def self.take_stdout
      out = $stdout.dup
      $stdout.reopen($stderr)
      out
    end

    # `out` is stdout, if it was taken already.
    def initialize(out: nil, &handle)
      @handle = handle || raise(ArgumentError, "give the handler as a block")
      @out = out
      @calls, @threads, @asked, @lock = {}, {}, {}, Mutex.new
    end

    # Returns after `shutdown`, or when stdin has ended and so have the handlers.
    def run
      @out ||= ProcessWorker.take_stdout
      $stdin.set_encoding("UTF-8")
      $stdin.each_line do |line|
        message = JSON.parse(line)
        case message["type"]
        when "perform" then start(*message.values_at("batch", "lanes"))
        when "step" then @asked[[message["batch"], message["lane"]]]&.push(message)
        when "cancel" then cancel(*message.values_at("batch", "lane", "job_ids"))
        when "shutdown" then return
        end
      end
      abandon
      @lock.synchronize { @threads.values }.each(&:join)
    end

    private

    # The node is gone: nobody hears the answers.
    def abandon
      @lock.synchronize { @calls.values.flatten }.each { |lane| lane.lost = true }
      @lock.synchronize { @asked.values }.each { |answers| answers.push(NOBODY) }
    end

    def start(batch, documents)
      lanes = documents.map do |document|
        message = { type: "progress", batch: batch, lane: document["lane"] }
        report = ->(progress) { write({ **message, progress: progress }) }
        Lane.new(document, report, ->(lane, step) { ask(batch, lane, step) })
      end
      @lock.synchronize do
        @calls[batch] = lanes
        @threads[batch] = Thread.new { perform(batch, lanes) }
      end
    end

    # Tells of a step, and waits for the answer.
    def ask(batch, lane, step)
      answers = @lock.synchronize { @asked[[batch, lane.lane]] ||= Queue.new }
      message = { type: step[:done] ? "step_done" : "step", batch: batch, lane: lane.lane, step: step[:name] }
      write(step[:done] ? { **message, result: step[:result] } : message)
      # At the end of stdin nobody answers any more.
      lane.lost? ? NOBODY : answers.pop
    end

    def cancel(batch, lane, job_ids)
      named = @lock.synchronize { @calls[batch] }&.find { |one| one.lane == lane }
      named&.cancel_jobs(job_ids)
    end

    def perform(batch, lanes)
      results = lanes.zip(answers(lanes)).map { |lane, outcome| { lane: lane.lane, **outcome } }
      @lock.synchronize do
        [@calls, @threads].each { |map| map.delete(batch) }
        lanes.each { |lane| @asked.delete([batch, lane.lane]) }
      end
      write({ type: "result", batch: batch, results: results })
    end

    # What fails around the handler, as a hook of the application, leaves no call without an answer either.
    def answers(lanes)
      outcomes_of(lanes)
    rescue Exception => error # rubocop:disable Lint/RescueException
      outcome = Seriatim.failure("a call", error)
      lanes.map { outcome }
    end

    # One after another.
    def outcomes_of(lanes)
      lanes.map { |lane| Seriatim.outcome_of(@handle, lane) }
    end

    def write(message)
      line = "#{JSON.generate(message)}\n"
      @lock.synchronize { @out.write(line) && @out.flush }
    rescue Errno::EPIPE
      # The node is gone, which the end of stdin says too.
    end
  end
end
