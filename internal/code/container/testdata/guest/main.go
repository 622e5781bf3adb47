// Command guest is a binary image's program for tests: what it does with a request, the request says.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

type request struct {
	Do   string `json:"do"`
	With string `json:"with"`
}

func main() {
	if len(os.Args) > 1 {
		once(os.Args[1])
		return
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			fmt.Println("!" + err.Error())
			continue
		}
		answer := json.NewEncoder(os.Stdout)
		answer.SetEscapeHTML(false)
		if err := answer.Encode(do(r)); err != nil {
			panic(err)
		}
	}
}

// once answers one call. Other words than these are answered like a request without a word, after all input was read.
func once(word string) {
	switch word {
	case "leave":
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		fmt.Printf("%d\n", len(line))
	case "early":
		fmt.Println(1)
	case "stream":
		io.Copy(os.Stdout, os.Stdin)
	case "start": // in the unit of /proc, which has it for processes of other namespaces too
		io.Copy(io.Discard, os.Stdin)
		stat, _ := os.ReadFile("/proc/self/stat")
		_, fields, _ := strings.Cut(string(stat), ") ")
		fmt.Println(strings.Fields(fields)[19])
	case "status":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println("{}")
		fmt.Fprintln(os.Stderr, "parting words")
		os.Exit(3)
	case "silent":
		io.Copy(io.Discard, os.Stdin)
	case "refuse":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println(`!"by wish"`)
	case "two":
		fmt.Println("1\n2")
	case "flood":
		fmt.Println(do(request{Do: word}))
	case "hang":
		do(request{Do: word})
	case "stay":
		io.Copy(io.Discard, os.Stdin)
		fmt.Println(1)
		os.Stdout.Close()
		time.Sleep(time.Hour)
	default:
		text, _ := io.ReadAll(os.Stdin)
		fmt.Printf("{\n  \"length\": %d\n}\n", len(text))
	}
}

func do(r request) any {
	switch r.Do {
	case "echo":
		return r.With
	case "pid":
		return os.Getpid()
	case "env":
		return os.Environ()
	case "ids":
		return []int{os.Getuid(), os.Getgid(), os.Geteuid()}
	case "read":
		text, err := os.ReadFile(r.With)
		return []any{len(text), fmt.Sprint(err)}
	case "list":
		entries, err := os.ReadDir(r.With)
		names := []string{}
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return []any{names, fmt.Sprint(err)}
	case "write":
		return fmt.Sprint(os.WriteFile(r.With, []byte("x"), 0o600))
	case "fill":
		file, err := os.Create(r.With)
		if err != nil {
			return err.Error()
		}
		n, err := io.CopyN(file, zeros{}, 1<<30)
		return []any{n, fmt.Sprint(err)}
	case "dial":
		network, address, _ := strings.Cut(r.With, " ")
		c, err := net.Dial(network, address)
		if err == nil {
			_ = c.Close()
		}
		return fmt.Sprint(err)
	case "socket":
		out := map[string]string{}
		for name, family := range map[string]int{"inet": 2, "netlink": 16, "packet": 17, "vsock": 40, "unix": 1} {
			fd, err := syscall.Socket(family, syscall.SOCK_STREAM, 0)
			if family == 16 || family == 17 {
				fd, err = syscall.Socket(family, syscall.SOCK_RAW, 0)
			}
			out[name] = fmt.Sprint(err)
			if err == nil {
				_ = syscall.Close(fd)
			}
		}
		return out
	case "calls":
		return map[string]string{
			"unshare": fmt.Sprint(syscall.Unshare(syscall.CLONE_NEWUSER)),
			"mount":   fmt.Sprint(syscall.Mount("none", "/tmp", "tmpfs", 0, "")),
			"ptrace":  fmt.Sprint(syscall.PtraceAttach(1)),
			"setuid":  fmt.Sprint(syscall.Setuid(0)),
			"chroot":  fmt.Sprint(syscall.Chroot("/tmp")),
		}
	case "newns":
		cmd := exec.Command("/bin/guest", "once")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		return fmt.Sprint(cmd.Run())
	case "bomb":
		n := 0
		for ; n < 1000; n++ {
			cmd := exec.Command("/bin/guest")
			in, err := cmd.StdinPipe()
			if err != nil {
				return []any{n, err.Error()}
			}
			_ = in
			if err := cmd.Start(); err != nil {
				return []any{n, err.Error()}
			}
		}
		return []any{n, "no limit"}
	case "hog":
		var all [][]byte
		for range 64 {
			block := make([]byte, 16<<20)
			for i := 0; i < len(block); i += 4096 {
				block[i] = 1
			}
			all = append(all, block)
		}
		return len(all)
	case "hang":
		time.Sleep(time.Hour)
	case "nap":
		time.Sleep(time.Second)
		return "rested"
	case "spin":
		for {
		}
	case "exit":
		fmt.Fprintln(os.Stderr, r.With)
		os.Exit(7)
	case "garbage":
		fmt.Println("this is no JSON")
	case "twice":
		fmt.Print("1\n2\n")
		time.Sleep(time.Hour)
	case "flood":
		for {
			os.Stdout.WriteString(strings.Repeat("x", 65536))
		}
	case "stderr":
		for range 1000 {
			os.Stderr.WriteString(strings.Repeat("e", 65535) + "\n")
		}
	case "background":
		go func() {
			for {
			}
		}()
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
