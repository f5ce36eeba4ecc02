# Random plain data: a line of hexadecimal digits for each dump. The JSON that is made of it comes back as a line, and must
# mean what Ruby's own means. ARGV: how many.
require "json"

random = Random.new(Integer(ENV.fetch("SERIATIM_SEED", "7")))
shared = ["shared", { "in" => [1.5, 2**65] }, 0.1, -(2**80), :symbol]
texts = ["", "a", "ü€😀", "a\u0000\u001f\u007f\"\\/", "\u2028", "a b"]

number = lambda do
  bits = random.rand(1..200)
  random.rand(2**bits) * (random.rand(2) * 2 - 1)
end
float = lambda do
  found = [random.rand(2**64)].pack("Q").unpack1("D")
  found.finite? ? found : 0.25
end
text = lambda do
  made = random.rand(3).zero? ? texts.sample(random: random).dup : random.bytes(random.rand(12)).unpack("C*").pack("U*")
  case random.rand(6)
  when 0 then made.ascii_only? ? made.encode("US-ASCII") : made
  when 1 then made.ascii_only? ? made.b : made
  when 2 then made.to_sym
  else made
  end
end
key = -> { random.rand(4).zero? ? number.call : text.call }
value = lambda do |depth|
  case random.rand(depth.zero? ? 9 : 12)
  when 0 then nil
  when 1 then [true, false].sample(random: random)
  when 2, 3 then number.call
  when 4 then float.call
  when 5 then random.rand(-1e6..1e6).round(random.rand(6))
  when 6, 7 then text.call
  when 8 then shared.sample(random: random)
  when 9, 10 then Array.new(random.rand(6)) { value.call(depth - 1) }
  else
    pairs = Array.new(random.rand(6)) { [key.call, value.call(depth - 1)] }
    pairs.uniq { |name, _| name.to_s.encode("UTF-8") }.to_h
  end
end

Integer(ARGV.first).times do
  made = value.call(random.rand(7))
  puts(Marshal.dump(made).unpack1("H*"))
  $stdout.flush
  told = $stdin.gets.force_encoding("UTF-8")
  wanted = JSON.generate(made)
  next if JSON.generate(JSON.parse(told)) == JSON.generate(JSON.parse(wanted))

  abort("#{made.inspect}: #{told} instead of #{wanted}")
end
