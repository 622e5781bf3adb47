package repository_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"j17/internal/base/clock"
	"j17/internal/custody/backup/repository"
)

// gateway is a real S3 server on a folder, whose folders are its buckets.
type gateway struct {
	root, socket string
}

// startGateway starts the S3 server that "make tools" has built. Where there is none the test is skipped, or fails in
// "make check".
func startGateway(t *testing.T) *gateway {
	t.Helper()
	found, err := filepath.Glob("../../../../.tools/versitygw-*")
	if err != nil || len(found) == 0 {
		if os.Getenv("J17_ALL_TOOLS") != "" {
			t.Fatal("there is no S3 server in .tools: run \"make tools\"")
		}
		t.Skip("SKIPPED: there is no S3 server in .tools: run \"make tools\"")
	}

	// It listens on a socket in a folder with a short name, since names of sockets are bounded.
	dir, err := os.MkdirTemp("", "j17s3-") //nolint:usetesting // see above
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	g := &gateway{root: filepath.Join(dir, "root"), socket: filepath.Join(dir, "s")}
	for _, folder := range []string{filepath.Join(g.root, "backups"), filepath.Join(dir, "meta")} {
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	cmd := exec.CommandContext(ctx, found[len(found)-1], "--port", g.socket, "--access", "the-key", "--secret",
		"the-secret", "--region", "us-east-1",
		"posix", "--sidecar", filepath.Join(dir, "meta"), g.root)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = cmd.Wait()
	})

	// It says where it listens once it does.
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), g.socket) {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return g
		}
	}
	t.Fatalf("the S3 server did not start(): %s", errs.String())
	return nil
}

func (g *gateway) options() repository.S3Options {
	return repository.S3Options{
		Endpoint: "http://s3.test", Bucket: "backups", Region: "us-east-1", Prefix: "some/where", AccessKey: "the-key",
		SecretKey: "the-secret",
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.socket)
		},
	}
}

func openBucket(t *testing.T) *repository.Repository {
	t.Helper()
	return must[*repository.Repository](t)(repository.OpenS3(startGateway(t).options(), clock.NewManual(start())))
}

func TestS3Refuses(t *testing.T) {
	t.Parallel() // most of its time it waits before it tries again
	g := startGateway(t)
	for want, change := range map[string]func(*repository.S3Options){
		"there is no bucket nowhere":       func(o *repository.S3Options) { o.Bucket = "nowhere" },
		"refuses the access key (XAdmin":   func(o *repository.S3Options) { o.AccessKey = "another" },
		"refuses the access key (Signatur": func(o *repository.S3Options) { o.SecretKey = "another" },
		"cannot be reached": func(o *repository.S3Options) {
			o.Dial = func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("10.1.2.3: refused")}
			}
		},
	} {
		o := g.options()
		change(&o)
		r, err := repository.OpenS3(o, clock.NewManual(start()))
		if err != nil {
			t.Fatal(err)
		}
		// The gateway may close the connection with its answer before it has read what is sent; then the answer is
		// sometimes not seen.
		for range 5 {
			_, err = backup(t, r, repository.Head{ID: "bak_1"}, sample(3), nil)
			if err == nil || strings.Contains(err.Error(), want) ||
				!strings.Contains(err.Error(), "broken the connection off") {
				break
			}
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "10.1") ||
			strings.Contains(err.Error(), "the-") {
			t.Errorf("%v, want %q", err, want)
		}
		if _, err := r.Manifest(t.Context(), "bak_1"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if _, _, err := r.Manifests(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

func TestS3OptionsAreChecked(t *testing.T) {
	for member, change := range map[string]func(*repository.S3Options){
		"endpoint":   func(o *repository.S3Options) { o.Endpoint = "ftp://s3.test" },
		"bucket":     func(o *repository.S3Options) { o.Bucket = "a/b/c" },
		"region":     func(o *repository.S3Options) { o.Region, o.Endpoint = "", "" },
		"prefix":     func(o *repository.S3Options) { o.Prefix = "a//b" },
		"access_key": func(o *repository.S3Options) { o.AccessKey = "" },
		"secret_key": func(o *repository.S3Options) { o.SecretKey = "" },
	} {
		o := (&gateway{}).options()
		change(&o)
		_, err := repository.OpenS3(o, clock.NewManual(start()))
		of, ok := errors.AsType[*repository.S3Error](err)
		if !ok || of.Member != member {
			t.Errorf("%s: %v", member, err)
		}
	}
	for _, endpoint := range []string{
		"https://a.test/path", "https://user:pw@a.test", "https://a.test?x", "a.test", "https://",
	} {
		o := (&gateway{}).options()
		o.Endpoint = endpoint
		if _, err := repository.OpenS3(o, clock.NewManual(start())); err == nil {
			t.Errorf("%s was taken", endpoint)
		}
	}
}

// TestS3BucketsHaveNames: where a bucket has a name that none can have, that is told, and not that a request has
// failed.
func TestS3BucketsHaveNames(t *testing.T) {
	for _, name := range []string{"b", "a..b", "10.0.0.1"} {
		o := (&gateway{}).options()
		o.Bucket = name
		r := must[*repository.Repository](t)(repository.OpenS3(o, clock.NewManual(start())))
		if _, _, err := r.Manifests(t.Context()); err == nil ||
			!strings.Contains(err.Error(), "there can be no bucket "+name) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// served is a repository in a bucket of a server that does with each connection what serve says.
func served(t *testing.T, serve func(net.Conn), changes ...func(*repository.S3Options)) *repository.Repository {
	t.Helper()
	o := repository.S3Options{
		Endpoint: "http://s3.test", Bucket: "backups", Region: "us-east-1", AccessKey: "the-key",
		SecretKey: "the-secret",
	}
	for _, change := range changes {
		change(&o)
	}
	o.Dial = func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		go func() {
			serve(theirs)
			_ = theirs.Close()
		}()
		return ours, nil
	}
	return must[*repository.Repository](t)(repository.OpenS3(o, clock.System{}))
}

// idle waits until connections that nobody uses are closed.
func idle(t *testing.T) {
	t.Helper()
	_ = clock.System{}.Wait(t.Context(), clock.System{}.Now().Add(2*time.Hour))
}

// answering reads requests and answers each with a head and, slowly, a body.
func answering(ctx context.Context, head, body string, at int, every time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			req, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			if _, err = io.Copy(io.Discard, req.Body); err == nil {
				_, err = io.WriteString(c, head)
			}
			for rest := body; err == nil && rest != ""; rest = rest[min(at, len(rest)):] {
				_ = clock.System{}.Wait(ctx, clock.System{}.Now().Add(every))
				_, err = io.WriteString(c, rest[:min(at, len(rest))])
			}
			if err != nil {
				return
			}
		}
	}
}

// A server that begins an answer and never ends it, reads nothing of what is sent, or sends a byte now and then holds
// nobody up for long.
func TestS3Hangs(t *testing.T) {
	const object = "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: 100000\r\nLast-Modified: Sun, 22 Nov 2026 12:00:00 GMT\r\n\r\n"
	read := func(ctx context.Context, r *repository.Repository) error {
		_, err := r.Manifest(ctx, "bak_1")
		return err
	}
	write := func(ctx context.Context, r *repository.Repository) error {
		_, err := r.NewBackup(ctx, repository.Head{ID: "bak_1", Kind: repository.Full})
		return err
	}
	for name, c := range map[string]struct {
		serve func(context.Context) func(net.Conn)
		use   func(context.Context, *repository.Repository) error
	}{
		"the answer does not end": {
			func(ctx context.Context) func(net.Conn) { return answering(ctx, object, "x", 1, 0) }, read,
		},
		"nothing is answered": {func(context.Context) func(net.Conn) {
			return func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
		}, read},
		"nothing is read": {func(ctx context.Context) func(net.Conn) {
			return func(net.Conn) { _ = clock.System{}.Wait(ctx, clock.System{}.Now().Add(time.Hour)) }
		}, write},
		"a byte a minute": {func(ctx context.Context) func(net.Conn) {
			return answering(ctx, object, strings.Repeat("x", 100_000), 1, time.Minute)
		}, read},
		"each answer is late": {func(ctx context.Context) func(net.Conn) {
			return answering(ctx, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n", strings.Repeat("x", 20), 1, 3*time.Second)
		}, write},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := served(t, c.serve(t.Context()))
				began := clock.System{}.Now()
				slow := false
				for range 100 {
					err := c.use(t.Context(), r)
					if slow = err != nil && strings.Contains(err.Error(), "too slow"); slow {
						break
					}
				}
				if !slow {
					t.Error("it is never too slow")
				}
				if took := (clock.System{}).Now().Sub(began); took > 10*time.Minute {
					t.Error(took)
				}
				idle(t)
			})
		})
	}
}

// A slow server that gets on is waited for, however long that takes in all.
func TestS3IsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 4 << 20
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\nLast-Modified: Sun, 22 Nov 2026 12:00:00 GMT\r\n\r\n", size)
		r := served(t, answering(t.Context(), head, strings.Repeat("x", size), 20<<10, time.Second))
		began := clock.System{}.Now()
		_, err := r.Manifest(t.Context(), "bak_1")
		if _, damaged := errors.AsType[*repository.DamagedError](err); !damaged {
			t.Error(err)
		}
		if took := (clock.System{}).Now().Sub(began); took < 3*time.Minute {
			t.Error(took)
		}
		idle(t)
	})
}

// An answer that is no end of names is not kept in memory.
func TestS3AnswersTooMuch(t *testing.T) {
	page := "<ListBucketResult><Contents><Key>" + strings.Repeat("x", 9<<20) // which does not end
	r := served(t, answering(t.Context(), fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n", len(page)), page, 1<<20, 0))
	if _, _, err := r.Manifests(t.Context()); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

// Nor is one that does not say where the bucket is.
func TestS3AnswersTooMuchOfALocation(t *testing.T) {
	text := "<LocationConstraint>" + strings.Repeat("x", 9<<20) // which does not end
	serve := answering(t.Context(), fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n", len(text)), text, 1<<20, 0)
	r := served(t, serve, func(o *repository.S3Options) { o.Region = "" })
	if _, err := r.Manifest(t.Context(), "bak_1"); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Error(err)
	}
}

// A list without objects whose pages always name another one is given up.
func TestS3ListsWithoutEnd(t *testing.T) {
	var pages atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	r := served(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			n := pages.Add(1)
			if n > 3000 {
				stop()
				return
			}
			page := fmt.Sprintf("<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken></ListBucketResult>", n)
			if _, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n%s", len(page), page); err != nil {
				return
			}
		}
	})
	if _, _, err := r.Manifests(ctx); err == nil || !strings.Contains(err.Error(), "does not end") {
		t.Error(err)
	}
	if n := pages.Load(); n > 1100 {
		t.Errorf("%d pages were asked for", n)
	}
}

// breaking is a connection that breaks when so many bytes were written on all of its kind.
type breaking struct {
	net.Conn
	left *atomic.Int64
}

func (b *breaking) Write(p []byte) (int, error) {
	if b.left.Add(-int64(len(p))) < 0 {
		_ = b.Close()
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken")}
	}
	return b.Conn.Write(p)
}

// The server goes away in the middle of a backup: there is no backup then, and the next one goes on with what is
// stored.
func TestS3FailsHalfWay(t *testing.T) {
	t.Parallel() // as TestS3Refuses
	g := startGateway(t)
	var left atomic.Int64
	o := g.options()
	dial := o.Dial
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if left.Load() < 0 {
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("gone")}
		}
		conn, err := dial(ctx, network, address)
		return &breaking{conn, &left}, err
	}
	ctx := t.Context()
	r, err := repository.OpenS3(o, clock.NewManual(start()))
	if err != nil {
		t.Fatal(err)
	}
	c := sample(20_000)
	left.Store(20 << 10)
	if _, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, c, nil); err == nil ||
		!strings.Contains(err.Error(), "s3://backups/some/where") {
		t.Fatal(err)
	}

	left.Store(1 << 40)
	if all, damaged, err := r.Manifests(ctx); len(all)+len(damaged) > 0 || err != nil {
		t.Fatal(all, damaged, err)
	}
	if err := r.Abandon(ctx, "bak_1"); err != nil { // which the writer could not say
		t.Fatal(err)
	}
	if _, err := backup(t, r, repository.Head{ID: "bak_1", Kind: repository.Full}, c, nil); err != nil {
		t.Fatal(err)
	}
	same(t, c, must[content](t)(read(ctx, r, "bak_1", repository.Identities{})))

	// It goes away in the middle of a reading.
	left.Store(0)
	if _, err := read(ctx, r, "bak_1", repository.Identities{}); err == nil ||
		strings.Contains(err.Error(), "cannot be used") {
		t.Fatal(err)
	}
}
