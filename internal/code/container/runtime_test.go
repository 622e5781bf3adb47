package container_test

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"j17/internal/code/container"
	"j17/internal/code/sandbox"
)

// language is the same application in one of the runtimes.
type language struct{ runtime, program, file, code, broken, lacking string }

func languages() []language {
	return []language{
		{
			runtime: "node", program: "node", file: "implications/order.mjs",
			code: `import { double } from './math.mjs';
console.log('loading');
export async function compute_implications(input) {
  console.log('called'); process.stdout.write('raw\n');
  switch (input.do) {
    case 'double': return { text: input.text, n: double(input.n) };
    case 'fail': throw new Error('broken by wish');
    case 'nothing': return undefined;
    case 'hang': for (;;) {}
    case 'exit': process.exit(3);
    case 'hog': { const all = []; for (;;) all.push(new Array(1e6).fill(input)); }
    case 'buffers': { const all = []; for (;;) all.push(Buffer.alloc(8 << 20, 1)); }
    case 'shadow': return (await import('node:fs')).readFileSync('/etc/shadow', 'utf8');
    case 'network': return fetch('http://127.0.0.1:17000');
    case 'large': return 'x'.repeat(2e6);
  }
}`,
			broken: "export const x = ;", lacking: "export const x = 1;",
		},
		{
			runtime: "python", program: "python3", file: "implications/order.py",
			code: `import os
import doubling
import rooted
print("loading")
def compute_implications(input):
    print("called"); os.write(1, b"raw\n")
    match input["do"]:
        case "double": return {"text": input["text"], "n": doubling.double(input["n"])}
        case "fail": raise ValueError("broken by wish")
        case "nothing": return {1, 2}
        case "hang":
            while True: pass
        case "exit": os._exit(3)
        case "hog":
            all = []
            while True: all.append(bytearray(8 << 20))
        case "buffers":
            import mmap
            all = []
            while True:
                m = mmap.mmap(-1, 8 << 20); m.write(b"x" * (8 << 20)); all.append(m)
        case "shadow": return open("/etc/shadow").read()
        case "network":
            import urllib.request
            return urllib.request.urlopen("http://127.0.0.1:17000").read()
        case "large": return "x" * 2000000
`,
			broken: "def :", lacking: "x = 1",
		},
		{
			runtime: "ruby", program: "ruby", file: "implications/order.rb",
			code: `require_relative "doubling"
puts "loading"
def compute_implications(input)
  puts "called"
  case input["do"]
  when "double" then {text: input["text"], n: double(input["n"])}
  when "fail" then raise "broken by wish"
  when "nothing" then Float::NAN
  when "hang" then loop {}
  when "exit" then exit!(3)
  when "hog" then all = []; loop { all << ("x" * (8 << 20)) }
  when "buffers" then all = []; loop { all << Array.new(1_000_000) { |i| i.to_s } }
  when "shadow" then File.read("/etc/shadow")
  when "network" then require "socket"; TCPSocket.new("127.0.0.1", 17000)
  when "large" then "x" * 2_000_000
  end
end
`,
			broken: "def )", lacking: "x = 1",
		},
		{
			runtime: "elixir", program: "elixir", file: "implications/order.exs",
			code: `IO.puts("loading")
defmodule Order do
  def compute_implications(input) do
    IO.puts("called")
    case input["do"] do
      "double" -> %{text: input["text"], n: input["n"] * 2}
      "fail" -> raise "broken by wish"
      "nothing" -> {:no, :json}
      "hang" -> loop()
      "exit" -> System.halt(3)
      "hog" -> hog([])
      "buffers" -> Enum.map(1..1000, fn i -> :binary.copy(<<rem(i, 256)>>, 8_388_608) end) |> length()
      "shadow" -> File.read!("/etc/shadow")
      "network" -> {:ok, _} = :gen_tcp.connect({127, 0, 0, 1}, 17000, [])
      "large" -> String.duplicate("x", 2_000_000)
    end
  end
  defp loop, do: loop()
  defp hog(all), do: hog([Enum.to_list(1..100_000) | all])
end
`,
			broken: "defmodule do", lacking: "x = 1",
		},
	}
}

func (l language) source() map[string]string {
	return map[string]string{
		l.file: l.code, "implications/math.mjs": "export const double = (n) => n * 2;",
		"implications/doubling.py": "def double(n): return n * 2", "implications/doubling.rb": "def double(n) = n * 2",
		"rooted.py": "", "doubling.py": "raise ImportError('the neighbour comes first')",
		"broken/" + filepath.Base(l.file): l.broken, "lacking/" + filepath.Base(l.file): l.lacking,
	}
}

func TestRuntimes(t *testing.T) {
	for _, l := range languages() {
		t.Run(l.runtime, func(t *testing.T) {
			if l.runtime == "ruby" || l.runtime == "elixir" {
				if _, err := os.Stat(filepath.Join("/usr/bin", l.program)); err != nil {
					t.Skipf("NOT TESTED: the runtime %s is not installed; install it with: apt-get install %s", l.program, l.program)
				}
			}
			need(t, l.program)
			r := open(t, container.Options{Driver: container.Bubblewrap, Timeout: ample})
			f, err := r.Source(t.Context(), l.runtime, sources(t, l.source()), l.file)
			if err != nil {
				t.Fatal(err)
			}
			for _, word := range []string{
				`plain`, `quote \" and \\ and \/`, `€ ü 日本 \ud83d\ude00 \n\t\u0001`, strings.Repeat("long ", 20_000),
			} {
				got := call(t, f, `{"do":"double","text":"`+word+`","n":21}`)
				var same, want struct {
					Text string
					N    int
				}
				if err := errors.Join(decode(got, &same), decode(`{"text":"`+word+`","n":42}`, &want)); err != nil ||
					same != want {
					t.Fatalf("%.200s: %.200s: %v", word, got, err)
				}
			}
			fault := fails(t, f, `{"do":"fail"}`, sandbox.Trap)
			if !strings.Contains(fault.Log, "broken by wish") || !strings.Contains(fault.Log, filepath.Base(l.file)) {
				t.Errorf("the account is %q", fault.Log)
			}
			_ = fails(t, f, `{"do":"nothing"}`, sandbox.Trap)
			_ = fails(t, f, `{"do":"shadow"}`, sandbox.Trap)
			_ = fails(t, f, `{"do":"network"}`, sandbox.Trap)
			if fault := fails(t, f, `{"do":"exit"}`, sandbox.Exit); !strings.Contains(fault.Detail, "status 3") ||
				!strings.Contains(fault.Log, "called") {
				t.Error(fault, fault.Log)
			}
			well := func() {
				t.Helper()
				if got := call(t, f, `{"do":"double","text":"","n":1}`); !strings.Contains(got, `"n":2`) {
					t.Error(got)
				}
			}
			well()
			short, err := open(t, container.Options{Driver: container.Bubblewrap, Timeout: scarce}).Source(
				t.Context(), l.runtime, sources(t, l.source()), l.file,
			)
			if err != nil {
				t.Fatal(err)
			}
			_ = fails(t, short, `{"do":"hang"}`, sandbox.Timeout)
			if got := call(t, short, `{"do":"double","text":"","n":1}`); !strings.Contains(got, `"n":2`) {
				t.Error(got)
			}
			_ = fails(t, f, `{"do":"hog"}`, sandbox.Memory)
			well()
			_ = fails(t, f, `{"do":"buffers"}`, sandbox.Memory)
			well()
			_ = fails(t, f, `{"do":"large"}`, sandbox.InvalidOutput)
			well()

			for _, bad := range []struct{ file, want string }{
				{"broken/" + filepath.Base(l.file), "cannot be loaded"},
				{"lacking/" + filepath.Base(l.file), "compute_implications"},
				{"absent.x", `The archive has no file "absent.x"`},
				{"implications", `The archive has no file "implications"`},
				{"../shadow", "is no path of a file in the archive"},
				{"/etc/passwd", "is no path of a file in the archive"},
			} {
				_, err := r.Source(t.Context(), l.runtime, sources(t, l.source()), bad.file)
				refused(t, err, bad.want)
			}
		})
	}
}

func refused(tb testing.TB, err error, want string) {
	tb.Helper()
	var e *container.Error
	if !errors.As(err, &e) || !strings.Contains(e.Message, want) {
		tb.Errorf("the error is %v, want a refusal with %q", err, want)
	}
}

func TestNodeExports(t *testing.T) {
	need(t, "node")
	r := open(t, container.Options{Driver: container.Bubblewrap})
	for name, code := range map[string]string{
		"default.mjs":  "export default (input) => input + 1",
		"handler.mjs":  "export const handler = async (input) => input + 1",
		"commonjs.cjs": "module.exports = (input) => input + 1",
		"named.cjs":    "exports.compute_implications = (input) => input + 1",
		"plain.js":     "exports.handler = (input) => input + 1",
	} {
		f, err := r.Source(t.Context(), "node", sources(t, map[string]string{name: code}), name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if got := call(t, f, "1"); got != "2" {
			t.Errorf("%s: %s", name, got)
		}
	}
	need(t, "python3")
	f, err := r.Source(t.Context(), "python", sources(t, map[string]string{"a.py": "async def handler(input):\n  return input + 1\n"}), "a.py")
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, f, "1"); got != "2" {
		t.Error(got)
	}
}

// TestDependencies installs what lockfiles name, from packages in the archive itself, for there is no network.
func TestDependencies(t *testing.T) {
	dir := folder(t)
	r := open(t, container.Options{Driver: container.Bubblewrap, Dir: dir})
	t.Run("node", func(t *testing.T) {
		need(t, "npm")
		app := map[string]string{
			"package.json": `{"name":"app","version":"1.0.0","dependencies":{"triple":"file:triple.tgz"}}`,
			"main.js":      "const triple = require('triple'); exports.handler = (n) => triple(n);",
			"triple.tgz": string(gzipOf(t, tarOf(t,
				file("package/package.json", `{"name":"triple","version":"1.0.0","main":"index.js","scripts":{"install":"echo RAN >&2; exit 1"}}`),
				file("package/index.js", "module.exports = (n) => n * 3;")))),
		}
		lock := `{"name":"app","version":"1.0.0","lockfileVersion":3,"requires":true,"packages":{"":{"name":"app","version":"1.0.0","dependencies":{"triple":"file:triple.tgz"}},
			"node_modules/triple":{"version":"1.0.0","resolved":"file:triple.tgz","hasInstallScript":true}}}`
		app["package-lock.json"] = lock
		f, err := r.Source(t.Context(), "node", sources(t, app), "main.js")
		if err != nil {
			t.Fatal(err)
		}
		if got := call(t, f, "7"); got != "21" {
			t.Error(got)
		}
		app["package.json"] = `{"name":"app","version":"1.0.0","dependencies":{"triple":"1.0.0"}}`
		app["package-lock.json"] = strings.NewReplacer(`"triple":"file:triple.tgz"`, `"triple":"1.0.0"`, "file:triple.tgz", "https://registry.example/triple-1.0.0.tgz").Replace(lock)
		_, err = r.Source(t.Context(), "node", sources(t, app), "main.js")
		refused(t, err, "The dependencies of the node code cannot be installed.")
		refused(t, err, "container_build_network")
		delete(app, "package-lock.json")
		app["yarn.lock"] = ""
		_, err = r.Source(t.Context(), "node", sources(t, app), "main.js")
		refused(t, err, "package-lock.json")
	})
	t.Run("python", func(t *testing.T) {
		need(t, "pip3")
		wheel := zipOf(t, map[string]string{
			"triple.py":                      "def triple(n): return n * 3\n",
			"triple-1.0.dist-info/METADATA":  "Metadata-Version: 2.1\nName: triple\nVersion: 1.0\n",
			"triple-1.0.dist-info/WHEEL":     "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
			"triple-1.0.dist-info/RECORD":    "triple.py,,\ntriple-1.0.dist-info/METADATA,,\ntriple-1.0.dist-info/WHEEL,,\ntriple-1.0.dist-info/RECORD,,\n",
			"triple-1.0.dist-info/top_level": "triple\n",
		})
		sum := sha256.Sum256(wheel)
		app := map[string]string{
			"main.py":                              "import triple\ndef handler(n):\n  return triple.triple(n)\n",
			"wheels/triple-1.0-py3-none-any.whl":   string(wheel),
			"requirements.txt":                     "--no-index\n--find-links wheels\ntriple==1.0 --hash=sha256:" + hex.EncodeToString(sum[:]) + "\n",
			"this is a name with ' quotes\" & ;ls": "",
		}
		f, err := r.Source(t.Context(), "python", sources(t, app), "main.py")
		if err != nil {
			t.Fatal(err)
		}
		if got := call(t, f, "7"); got != "21" {
			t.Error(got)
		}
		app["requirements.txt"] = "--no-index\n--find-links wheels\ntriple==1.0\n"
		_, err = r.Source(t.Context(), "python", sources(t, app), "main.py")
		refused(t, err, "hash")
		app["requirements.txt"] = "triple==1.0 --hash=sha256:" + strings.Repeat("0", 64) + "\n"
		_, err = r.Source(t.Context(), "python", sources(t, app), "main.py")
		refused(t, err, "The build has no network on this server")
	})
	for _, kind := range []string{"staging"} {
		left, err := os.ReadDir(filepath.Join(dir, kind))
		if err != nil || len(left) > 0 {
			t.Error("files are left", left, err)
		}
	}
}

// TestBuiltOnce runs code from what an earlier runner has built, without the archive.
func TestBuiltOnce(t *testing.T) {
	need(t, "python3")
	dir := folder(t)
	archive := sources(t, map[string]string{"a.py": "def handler(n):\n  return n\n"})
	first := open(t, container.Options{Driver: container.Bubblewrap, Dir: dir})
	f, err := first.Source(t.Context(), "python", archive, "a.py")
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := open(t, container.Options{Driver: container.Bubblewrap, Dir: dir})
	g, err := second.Source(
		t.Context(), "python", container.Archive{Reader: strings.NewReader("not read"), SHA256: archive.SHA256}, "a.py",
	)
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, g, "5"); got != "5" || f.Digest() != g.Digest() {
		t.Error(got, f.Digest(), g.Digest())
	}
	wrong := sources(t, map[string]string{"a.py": "def handler(n):\n  return 2\n"})
	wrong.SHA256[0]++
	if _, err := second.Source(t.Context(), "python", wrong, "a.py"); err == nil ||
		!strings.Contains(err.Error(), "digest") {
		t.Error(err)
	}
	h, err := second.Source(t.Context(), "python", sources(t, map[string]string{
		"a.py": "def handler(n):\n  return 2\n",
	}), "a.py")
	if err != nil || h.Digest() == g.Digest() {
		t.Error("another archive has the same digest", err)
	}
}

// TestGuide runs the examples of the guide: a file of source code and the program of an image.
func TestGuide(t *testing.T) {
	need(t, "python3")
	page, err := os.ReadFile("../../../docs/guides/containers.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.Split(string(page), "```python\n")[1:]
	if len(blocks) != 2 {
		t.Fatal(len(blocks), "examples")
	}
	for i := range blocks {
		blocks[i], _, _ = strings.Cut(blocks[i], "```")
	}
	const request = `{"event":{"key":"order:7","type":"was_placed","data":{"total":1500},"metadata":{}},"context":{}}`
	r := open(t, container.Options{Driver: container.Bubblewrap})
	f, err := r.Source(t.Context(), "python", sources(t, map[string]string{"review.py": blocks[0]}), "review.py")
	if err != nil {
		t.Fatal(err)
	}
	if got := call(t, f, request); got != `{"actions":[{"emit":{"key":"review:desk","event_type":"was_requested","data":{"order":"order:7"}}}]}` {
		t.Error(got)
	}
	program := exec.CommandContext(t.Context(), "python3", "-c", blocks[1])
	program.Stdin = strings.NewReader(request + "\n")
	got, err := program.Output()
	if err != nil || string(got) != "{\n  \"actions\": []\n}" {
		t.Errorf("%q, %v", got, err)
	}
}

func zipOf(tb testing.TB, files map[string]string) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for name, content := range files {
		f, err := w.Create(name)
		if err != nil {
			tb.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return b.Bytes()
}

func BenchmarkWarmCall(b *testing.B) {
	for _, l := range languages() {
		b.Run(l.runtime, func(b *testing.B) {
			need(b, l.program)
			r := open(b, container.Options{Driver: container.Bubblewrap, Timeout: 2 * time.Second})
			f, err := r.Source(b.Context(), l.runtime, sources(b, map[string]string{l.file: map[string]string{
				"node": "export default (x) => ({ actions: [{ emit: x.event }] })", "python": "def handler(x):\n  return {'actions': [{'emit': x['event']}]}\n",
				"ruby": "def handler(x) = {actions: [{emit: x['event']}]}\n", "elixir": "defmodule A do\n  def handler(x), do: %{actions: [%{emit: x[\"event\"]}]}\nend\n",
			}[l.runtime]}), l.file)
			if err != nil {
				b.Fatal(err)
			}
			request := []byte(`{"event":{"key":"order:1","type":"was_placed","data":{"n":` + strconv.Itoa(b.N) + `},"metadata":{}}}`)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := f.Call(b.Context(), request); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}
