package main

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"j17/internal/base/clock"
)

// connections is how many clients send at the same time.
const connections = 32

// target is a running program.
type target struct {
	address, key string
	pid          int
}

// path is one kind of request. body is empty for reads. UUID in url and OTHER in body are a new id for
// each request, CLIENT is the number of the connection.
type path struct {
	name, url, body string
	// bar is the ratio that the interval has to reach.
	bar float64
}

// measured is what one round of one path on one program gave.
type measured struct {
	perSecond float64
	// processor is the processor time that the program took for a request.
	processor time.Duration
}

// load sends requests over keep-alive connections for a while and counts the answers. Any answer but 2xx is an error.
func (t *target) load(p path, long time.Duration) (measured, error) {
	var now clock.System
	before, err := processorTime(t.pid)
	if err != nil {
		return measured{}, err
	}
	start := now.Now()
	end := start.Add(long)
	counts, errs := make([]int, connections), make([]error, connections)
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			counts[i], errs[i] = t.client(p, i, func() bool { return now.Now().Before(end) })
		})
	}
	all.Wait()
	took := now.Now().Sub(start)
	after, err := processorTime(t.pid)
	if err = errors.Join(err, errors.Join(errs...)); err != nil {
		return measured{}, err
	}
	n := 0
	for _, c := range counts {
		n += c
	}
	if n == 0 {
		return measured{}, errors.New("no request was answered")
	}
	return measured{perSecond: float64(n) / took.Seconds(), processor: (after - before) / time.Duration(n)}, nil
}

// client sends one request after the other on one connection, which has a number.
func (t *target) client(p path, number int, more func() bool) (int, error) {
	conn, err := net.DialTimeout("tcp", t.address, 5*time.Second) //nolint:noctx // it ends by the deadline below
	if err != nil {
		return 0, err
	}
	defer conn.Close() //nolint:errcheck // nothing is lost
	if err := conn.SetDeadline(clock.System{}.Now().Add(5 * time.Minute)); err != nil {
		return 0, err
	}
	answers := bufio.NewReader(conn)
	p.url = strings.ReplaceAll(p.url, "CLIENT", fmt.Sprintf("%06d", number))
	n := 0
	for more() {
		if err := t.send(conn, p); err != nil {
			return n, err
		}
		if err := answer(answers); err != nil {
			return n, fmt.Errorf("%s: %w", p.name, err)
		}
		n++
	}
	return n, nil
}

func (t *target) send(w io.Writer, p path) error {
	method, body := "GET", strings.ReplaceAll(p.body, "UUID", uuid())
	if body != "" {
		method = "POST"
		for strings.Contains(body, "OTHER") {
			body = strings.Replace(body, "OTHER", uuid(), 1)
		}
	}
	_, err := fmt.Fprintf(w, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		method, strings.ReplaceAll(p.url, "UUID", uuid()), t.address, t.key, len(body), body)
	return err
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// answer reads one reply, which has to have a length.
func answer(r *bufio.Reader) error {
	status, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	length := -1
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return err
		}
		if line == "\r\n" {
			break
		}
		if name, v, _ := strings.Cut(line, ":"); strings.EqualFold(name, "Content-Length") {
			if length, err = strconv.Atoi(strings.TrimSpace(v)); err != nil {
				return err
			}
		}
	}
	if length < 0 {
		return errors.New("an answer has no length")
	}
	if fields := strings.Fields(status); len(fields) < 2 || fields[1][0] != '2' {
		body := make([]byte, min(length, 500))
		_, _ = io.ReadFull(r, body)
		return fmt.Errorf("%s: %s", strings.TrimSpace(status), body)
	}
	_, err = r.Discard(length)
	return err
}

// processorTime returns what a process has used so far, in steps of a hundredth of a second.
func processorTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	text := string(raw)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond, err
}
