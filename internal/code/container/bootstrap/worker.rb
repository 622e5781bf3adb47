# Runs the author's file in Ruby: loads it, then answers one line of JSON for each line of JSON.
require "json"

# Standard output belongs to the answers: what the author prints goes to standard error. Standard input belongs to the
# requests: the author finds it at its end.
ANSWERS = $stdout.dup
ANSWERS.sync = true
$stdout.reopen($stderr)
REQUESTS = $stdin.dup
$stdin.reopen(File::NULL)

def account(error)
  "!" + JSON.generate(error.full_message(highlight: false, order: :top).scrub)
end

begin
  if File.exist?("/app/Gemfile.lock")
    require "bundler/setup"
  end
  $LOAD_PATH.unshift("/app")
  load ARGV.fetch(0)
  entry = [:compute_implications, :handler].find { |name| Object.private_method_defined?(name) || Object.method_defined?(name) }
  raise NameError, "the file defines no method compute_implications(input) and no handler(input)" unless entry
rescue Exception => error
  ANSWERS.puts account(error)
  exit 1
end
ANSWERS.puts '"ready"'

REQUESTS.each_line do |line|
  reply = begin
    JSON.generate(send(entry, JSON.parse(line)))
  rescue StandardError, ScriptError, NoMemoryError, SystemStackError => error
    account(error)
  end
  ANSWERS.puts reply
end
