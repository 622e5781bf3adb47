package repository

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/minio/minio-go/v7/pkg/s3utils"

	"j17/internal/base/clock"
)

// S3Options say where a bucket is and with which credentials it is used.
type S3Options struct {
	// Endpoint is the URL of the server, without a path; "" means that of Amazon for the region.
	Endpoint string
	Bucket   string
	Region   string
	// Prefix begins the names of all objects, as a folder.
	Prefix               string
	AccessKey, SecretKey string
	// Dial, if not nil, makes the connections.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// S3Error reports which of the options cannot be used.
type S3Error struct {
	// Member is "endpoint", "bucket", "region", "prefix", "access_key" or "secret_key".
	Member string
	Reason string
}

// Error describes the mistake.
func (e *S3Error) Error() string { return "the " + e.Member + " " + e.Reason }

// How long it may take to make a connection, and how long an idle one stays open. The time of requests is limited by
// patience.
const (
	connectWait = 20 * time.Second
	idleWait    = time.Minute
)

// bucket is a storage in a bucket of an S3 server.
type bucket struct {
	client *minio.Client
	name   string
	// prefix is "" or ends in a slash.
	prefix string
}

// OpenS3 returns the repository in a bucket, which must exist. The options are checked, no request is made. A mistake
// in them is an *S3Error.
func OpenS3(o S3Options, c clock.Clock) (*Repository, error) {
	at, err := o.check()
	if err != nil {
		return nil, err
	}
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: connectWait}).DialContext
	}
	client, err := minio.New(at.Host, &minio.Options{
		Creds: credentials.NewStaticV4(o.AccessKey, o.SecretKey, ""), Secure: at.Scheme == "https", Region: o.Region,
		BucketLookup: minio.BucketLookupAuto,
		Transport: newPatience(&http.Transport{
			DialContext: dial, TLSHandshakeTimeout: connectWait, ExpectContinueTimeout: time.Second,
			IdleConnTimeout: idleWait, MaxIdleConnsPerHost: mostPackers + waiting, DisableCompression: true,
			ForceAttemptHTTP2: true,
		}),
		MaxRetries: 4,
	})
	if err != nil {
		return nil, &S3Error{Member: "endpoint", Reason: "cannot be used: " + err.Error()}
	}
	b := &bucket{client: client, name: o.Bucket, prefix: strings.Trim(o.Prefix, "/")}
	if b.prefix != "" {
		b.prefix += "/"
	}
	return &Repository{storage: b, clock: c}, nil
}

// check returns the address of the server.
func (o *S3Options) check() (*url.URL, error) {
	if o.Region == "" && o.Endpoint == "" {
		return nil, &S3Error{Member: "region", Reason: "is missing: without an endpoint it says where the bucket is"}
	}
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = "https://s3." + o.Region + ".amazonaws.com"
	}
	at, err := url.Parse(endpoint)
	if err != nil || at.Scheme != "https" && at.Scheme != "http" || at.Host == "" || strings.Trim(at.Path, "/") != "" ||
		at.RawQuery != "" || at.Fragment != "" || at.User != nil {
		return nil, &S3Error{Member: "endpoint", Reason: "has to be the URL of a server without a path, such as https://s3.example.com"}
	}
	if !plainName(o.Bucket) {
		return nil, &S3Error{Member: "bucket", Reason: "has to be the name of a bucket"}
	}
	for part := range strings.SplitSeq(strings.Trim(o.Prefix, "/"), "/") {
		if o.Prefix != "" && !plainName(part) {
			return nil, &S3Error{Member: "prefix", Reason: "has to consist of names that slashes divide"}
		}
	}
	if o.AccessKey == "" {
		return nil, &S3Error{Member: "access_key", Reason: "is missing"}
	}
	if o.SecretKey == "" {
		return nil, &S3Error{Member: "secret_key", Reason: "is missing"}
	}
	return at, nil
}

func (b *bucket) String() string {
	return strings.TrimSuffix("s3://"+b.name+"/"+b.prefix, "/")
}

func (b *bucket) Cheap() bool { return false }

// Put writes an object. S3 stores it as a whole or not at all.
func (b *bucket) Put(ctx context.Context, name string, content []byte) error {
	// A file of a backup is far below the size above which an object has to be sent in pieces.
	_, err := b.client.PutObject(ctx, b.name, b.prefix+name, bytes.NewReader(content), int64(len(content)),
		minio.PutObjectOptions{
			ContentType: "application/octet-stream", DisableMultipart: true, SendContentMd5: true,
		})
	return b.readable(err)
}

// Sync has nothing to do: what a server has acknowledged is durable.
func (b *bucket) Sync(ctx context.Context) error { return ctx.Err() }

func (b *bucket) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	// One request, whose refusals have a text.
	object, info, _, err := (&minio.Core{Client: b.client}).GetObject(
		ctx, b.name, b.prefix+name, minio.GetObjectOptions{},
	)
	if err != nil {
		return nil, b.readable(err)
	}
	defer func() { _ = object.Close() }() // it was only read
	content, err := readBounded(object, info.Size, limit)
	return content, b.readable(err)
}

// mostListed is how many objects a listing may have. Its requests may be emptyPages, and one more for each fewestAPage
// objects received: usually each request returns a thousand. These limits are needed since the server decides what a
// listing returns, and all objects are kept in memory.
const (
	mostListed  = 2 << 20
	emptyPages  = 1 << 10
	fewestAPage = 1 << 6
)

var (
	errMany  = errors.New("there are more than two million objects: give the backups a prefix, or a bucket, of their own")
	errPages = errors.New("the list of objects does not end: the server has sent more than a thousand pages with hardly any, and says that there are more")
)

// listing counts the requests of a listing, and the objects received.
type listing struct {
	pages, objects atomic.Int64
	// stop ends the listing.
	stop context.CancelCauseFunc
}

// listingKey is the context key for the listing of a request.
type listingKey struct{}

// page counts a request, and ends the listing after too many.
func (l *listing) page() error {
	if l.pages.Add(1) <= emptyPages+l.objects.Load()/fewestAPage {
		return nil
	}
	l.stop(errPages)
	return errPages
}

func (b *bucket) List(ctx context.Context, folder string) iter.Seq2[file, error] {
	return func(yield func(file, error) bool) {
		ctx, stop := context.WithCancelCause(ctx) // ends the listing in the background
		defer stop(nil)
		l := &listing{stop: stop}
		ctx = context.WithValue(ctx, listingKey{}, l)
		for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{
			Prefix: b.prefix + folder, Recursive: true,
		}) {
			if n := l.objects.Add(1); object.Err != nil || n > mostListed {
				err := cmp.Or(object.Err, errMany)
				if errors.Is(context.Cause(ctx), errPages) {
					err = errPages
				}
				yield(file{}, b.readable(err))
				return
			}
			name := strings.TrimPrefix(object.Key, b.prefix)
			if name != folder && !strings.HasPrefix(name, folder+"/") {
				continue // only the beginning is the same
			}
			if !yield(file{Name: name, Bytes: object.Size, Modified: object.LastModified}, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			if errors.Is(context.Cause(ctx), errPages) {
				err = errPages
			}
			yield(file{}, err)
		}
	}
}

func (b *bucket) Delete(ctx context.Context, name string) error {
	err := b.readable(b.client.RemoveObject(ctx, b.name, b.prefix+name, minio.RemoveObjectOptions{}))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// RefusedError is an error of S3Options.Dial that may be shown to the operator who has named the server.
type RefusedError struct{ Reason string }

// Error returns the reason.
func (e *RefusedError) Error() string { return e.Reason }

// readable turns an error into one that says what to do. It leaves out network addresses, which may come from a
// backup's row that others see.
func (b *bucket) readable(err error) error {
	for _, plain := range []error{errSlow, errTooLarge, errMany, errPages} {
		if errors.Is(err, plain) {
			return plain
		}
	}
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok {
		return refused
	}
	response := minio.ToErrorResponse(err)
	switch response.Code {
	case minio.NoSuchKey:
		return fs.ErrNotExist
	case minio.NoSuchBucket:
		return fmt.Errorf("there is no bucket %s on the server: make it, or name another one", b.name)
	case minio.AccessDenied, "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound":
		return fmt.Errorf("the server refuses the access key (%s): see to it that the key is right and may read, write, list and delete in the bucket", response.Code)
	case "":
	default:
		return fmt.Errorf("the server answered %s (status %d)", response.Code, response.StatusCode)
	}
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return errors.New("the server did not answer in time")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return errors.New("the certificate of the server cannot be verified: have this machine trust the authority that gave it, and name the server as the certificate does")
	}
	if brokenOff(err) {
		return errors.New("the server cannot be reached, or has broken the connection off")
	}
	if s3utils.CheckValidBucketName(b.name) != nil { // checked before any request
		return fmt.Errorf("there can be no bucket %s: name one of 3 to 63 letters, digits, dots and hyphens", b.name)
	}
	return errors.New("the request to the server failed")
}

// brokenOff reports whether there was no answer, or only a part of one. If a connection ends before the answer, the
// client's error has a text of its own, in the error of a URL.
func brokenOff(err error) bool {
	_, network := errors.AsType[*net.OpError](err)
	_, request := errors.AsType[*url.Error](err)
	return network || request || errors.Is(err, io.ErrUnexpectedEOF)
}
