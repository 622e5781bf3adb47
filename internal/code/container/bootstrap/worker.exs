# Runs the author's file in Elixir: loads it, then answers one line of JSON for each line of JSON. The JSON of the standard
# library is too young to count on, so a small reader and writer come along.
defmodule J17.JSON do
  def decode!(text) do
    {value, rest} = value(space(text))
    "" = space(rest)
    value
  end

  defp space(<<c, rest::binary>>) when c in ' \t\r\n', do: space(rest)
  defp space(rest), do: rest

  defp value("null" <> rest), do: {nil, rest}
  defp value("true" <> rest), do: {true, rest}
  defp value("false" <> rest), do: {false, rest}
  defp value("\"" <> rest), do: string(rest, [])

  defp value("[" <> rest) do
    case space(rest) do
      "]" <> rest -> {[], rest}
      rest -> items(rest, [])
    end
  end

  defp value("{" <> rest) do
    case space(rest) do
      "}" <> rest -> {%{}, rest}
      rest -> members(rest, [])
    end
  end

  defp value(text) do
    [digits] = Regex.run(~r/\A-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/, text)
    rest = binary_part(text, byte_size(digits), byte_size(text) - byte_size(digits))
    {number(digits), rest}
  end

  defp number(digits) do
    case Integer.parse(digits) do
      {whole, ""} -> whole
      _ -> digits |> Float.parse() |> elem(0)
    end
  end

  defp items(text, done) do
    {item, rest} = value(space(text))

    case space(rest) do
      "," <> rest -> items(rest, [item | done])
      "]" <> rest -> {Enum.reverse([item | done]), rest}
    end
  end

  defp members(text, done) do
    "\"" <> rest = space(text)
    {name, rest} = string(rest, [])
    ":" <> rest = space(rest)
    {item, rest} = value(space(rest))

    case space(rest) do
      "," <> rest -> members(rest, [{name, item} | done])
      "}" <> rest -> {Map.new([{name, item} | done]), rest}
    end
  end

  defp string("\"" <> rest, done), do: {done |> Enum.reverse() |> IO.iodata_to_binary(), rest}
  defp string("\\u" <> <<hex::binary-size(4), rest::binary>>, done), do: unicode(String.to_integer(hex, 16), rest, done)
  defp string(<<"\\", c, rest::binary>>, done), do: string(rest, [escaped(c) | done])
  defp string(<<c::utf8, rest::binary>>, done), do: string(rest, [<<c::utf8>> | done])

  defp unicode(high, <<"\\u", hex::binary-size(4), rest::binary>>, done) when high in 0xD800..0xDBFF do
    low = String.to_integer(hex, 16)
    string(rest, [<<0x10000 + (high - 0xD800) * 0x400 + (low - 0xDC00)::utf8>> | done])
  end

  defp unicode(code, rest, done) when code in 0xD800..0xDFFF, do: string(rest, ["\uFFFD" | done])
  defp unicode(code, rest, done), do: string(rest, [<<code::utf8>> | done])

  defp escaped(?n), do: "\n"
  defp escaped(?t), do: "\t"
  defp escaped(?r), do: "\r"
  defp escaped(?b), do: "\b"
  defp escaped(?f), do: "\f"
  defp escaped(c) when c in '"\\/', do: <<c>>

  def encode!(nil), do: "null"
  def encode!(true), do: "true"
  def encode!(false), do: "false"
  def encode!(name) when is_atom(name), do: encode!(Atom.to_string(name))
  def encode!(number) when is_integer(number), do: Integer.to_string(number)
  def encode!(number) when is_float(number), do: Float.to_string(number)
  def encode!(items) when is_list(items), do: ["[", items |> Enum.map(&encode!/1) |> Enum.intersperse(","), "]"]

  # Most texts need no escapes and are not taken apart.
  @escaped for c <- [?", ?\\ | Enum.to_list(0..0x1F)], do: <<c>>
  def encode!(text) when is_binary(text) do
    plain = :binary.match(text, @escaped) == :nomatch and String.valid?(text)
    ["\"", if(plain, do: text, else: quoted(text, [])), "\""]
  end

  def encode!(map) when is_map(map) do
    members = for {name, item} <- map, do: [encode!(to_string(name)), ":", encode!(item)]
    ["{", Enum.intersperse(members, ","), "}"]
  end

  defp quoted("", done), do: Enum.reverse(done)
  defp quoted(<<c, rest::binary>>, done) when c in '"\\', do: quoted(rest, [<<?\\, c>> | done])

  defp quoted(<<c, rest::binary>>, done) when c < 0x20,
    do: quoted(rest, ["\\u" <> String.pad_leading(Integer.to_string(c, 16), 4, "0") | done])

  defp quoted(<<c::utf8, rest::binary>>, done), do: quoted(rest, [<<c::utf8>> | done])
end

defmodule J17.Worker do
  def run(file) do
    # Standard output belongs to the answers: what the author prints goes to standard error.
    answers = Process.group_leader()
    # Lines are bytes; the reader below takes UTF-8 apart itself.
    :ok = :io.setopts(answers, encoding: :latin1)
    Process.group_leader(self(), Process.whereis(:standard_error))

    case attempt(fn -> load(file) end) do
      {:ok, entry} ->
        say(answers, "\"ready\"")
        loop(answers, entry)

      {:error, reason} ->
        say(answers, reason)
        System.halt(1)
    end
  end

  defp load(file) do
    for dir <- Path.wildcard("/app/_build/prod/lib/*/ebin"), do: Code.append_path(dir)

    modules = file |> Code.require_file() |> Enum.map(&elem(&1, 0))

    found =
      for name <- [:compute_implications, :handler], module <- modules, function_exported?(module, name, 1), do: {module, name}

    List.first(found) ||
      raise "the file defines no module with compute_implications(input) or handler(input)"
  end

  defp loop(answers, {module, name} = entry) do
    case IO.binread(answers, :line) do
      line when is_binary(line) ->
        case attempt(fn -> apply(module, name, [J17.JSON.decode!(line)]) |> J17.JSON.encode!() |> IO.iodata_to_binary() end) do
          {:ok, reply} -> say(answers, reply)
          {:error, reason} -> say(answers, reason)
        end

        loop(answers, entry)

      _ ->
        System.halt(0)
    end
  end

  defp attempt(work) do
    {:ok, work.()}
  catch
    kind, reason -> {:error, IO.iodata_to_binary(["!", J17.JSON.encode!(Exception.format(kind, reason, __STACKTRACE__))])}
  end

  defp say(answers, line), do: IO.binwrite(answers, [line, "\n"])
end

J17.Worker.run(hd(System.argv()))
