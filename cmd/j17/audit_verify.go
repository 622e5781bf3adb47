package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"j17"
	"j17/internal/custody/proof"
)

// verification is one run of "audit verify".
type verification struct {
	env        *env
	keys       []string
	checkpoint string
	streams    string
	asJSON     bool
}

func auditVerifyCommand(e *env) *cobra.Command {
	v := &verification{env: e}
	cmd := &cobra.Command{
		Use: "verify FILE", Short: "Verify an export, a checkpoint or a certificate, without a server", Args: exactly("FILE"),
		Long: `Verify an export ('j17 data export'), a checkpoint of an environment's log or a certificate of an erasure. It needs no server.

Of an export every event is verified: its bytes, its place in the chain of its aggregate, its place in the log of the environment, and
the signature over the log. --key says by whose key it has to be signed; without one the export is held against the key that it brings
along, which shows that it is whole but not whom it is from. With --checkpoint it also has to extend an older checkpoint of the same log
that you have kept: then nothing of what was signed before has been changed or left out.

A certificate of an erasure that has reached more than 1000 aggregates lists the first of them, and has the root of a tree over all. --streams
holds the list of all of them ('j17 tombstone streams ID --json') against it.

It exits with 7 where something is wrong, and names the first event that is; with 3 where the file is an export in the newest
generation (--generation newest), which nothing proves.`,
		Example: "  j17 audit verify events.jsonl --key 'acme.example/prod+8d5c1f2a+AZ...'\n  j17 audit verify events.jsonl --checkpoint january.txt\n  j17 audit verify certificate.txt --key 'acme.example/prod+8d5c1f2a+AZ...' --json",
	}
	cmd.Flags().StringArrayVar(&v.keys, "key", nil, "verifier `key` of the log, which has to have signed the file; several where the key was rotated")
	cmd.Flags().StringVar(&v.checkpoint, "checkpoint", "", "`file` with an older checkpoint that the export has to extend")
	cmd.Flags().StringVar(&v.streams, "streams", "", "`file` with all streams that an erasure has reached, which a certificate has to be about")
	jsonFlag(cmd, &v.asJSON)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, flag := range []string{"checkpoint", "streams"} {
			if given := cmd.Flags().Lookup(flag); given.Changed && given.Value.String() == "" {
				return usageError{fmt.Errorf("--%s needs the name of a file, and has an empty one", flag)}
			}
		}
		for _, key := range v.keys {
			if err := proof.CheckKey(key); err != nil {
				return usageError{fmt.Errorf("--key: %w, as GET /_audit/keys lists it", err)}
			}
		}
		if err := stdinOnce(map[string]string{
			"FILE": args[0], "--checkpoint": v.checkpoint, "--streams": v.streams,
		}); err != nil {
			return err
		}
		return v.run(cmd.Context(), args[0])
	}
	return cmd
}

// mostNote bounds the file of a checkpoint that is to be extended.
const mostNote = 1 << 20

// run verifies a file.
func (v *verification) run(ctx context.Context, name string) error {
	o := proof.VerifyOptions{Keys: v.keys}
	if v.checkpoint != "" {
		raw, err := v.env.readText(v.checkpoint, mostNote, "It is to be a checkpoint, as GET /_audit/checkpoint serves it.")
		if err != nil {
			return err
		}
		if len(raw) == 0 {
			return j17.Errorf(j17.CodeCorruption, "%s does not hold: the file of the older checkpoint is empty", fileName(v.checkpoint))
		}
		o.Checkpoint = string(raw)
	}
	in, done, err := v.open(name)
	if err != nil {
		return err
	}
	defer done()
	if v.streams != "" {
		list, done, err := v.open(v.streams)
		if err != nil {
			return err
		}
		defer done()
		o.Streams = &endingReader{ctx, list}
	}

	// A bar shows how far it is.
	if terminal(v.env.err) {
		bar := v.env.bar(-1, "events")
		o.Progress = func() { _ = bar.Add(1) } // it is decoration
		defer func() { _ = bar.Finish() }()    // the same
	}
	report, err := proof.Verify(&endingReader{ctx, in}, o)
	failure, wrong := errors.AsType[*proof.Failure](err)
	switch {
	case errors.Is(err, proof.ErrNoKey):
		return usageError{fmt.Errorf("%w with --key, as GET /_audit/keys lists it", err)}
	case wrong:
		e := j17.Errorf(j17.CodeCorruption, "%s does not hold: %s", fileName(name), failure)
		e.Details = map[string]any{"line": failure.Line, "stream_id": failure.Position, "key": failure.Key}
		return e
	case errors.Is(err, proof.ErrDocument):
		return usageError{fmt.Errorf("%s cannot be verified: %w", fileName(name), err)}
	case errors.Is(err, proof.ErrNewest):
		return eventError{fmt.Errorf("%s cannot be verified: %w", fileName(name), err)}
	case ctx.Err() != nil:
		return interrupted(ctx, err)
	case err != nil:
		return unreadable(name, err)
	case v.asJSON:
		return v.env.printJSON(report)
	}
	_, err = io.WriteString(v.env.out, shown(told(&report)))
	return err
}

// open opens the file, or standard input.
func (v *verification) open(name string) (io.Reader, func(), error) {
	if name == "-" {
		return v.env.interruptible(v.env.in), func() {}, nil
	}
	f, err := os.Open(name) //nolint:gosec // the user names the file
	if err != nil {
		return nil, nil, unreadable(name, err)
	}
	return f, func() { _ = f.Close() }, nil // it was only read
}

// endingReader reads until its context ends.
type endingReader struct {
	ctx context.Context //nolint:containedctx // it lives as long as one run of the command
	in  io.Reader
}

// Read implements io.Reader.
func (r *endingReader) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return r.in.Read(p)
}

// told describes for people what was verified.
func told(r *proof.Report) string {
	var b strings.Builder
	signed := "signed by " + strings.Join(r.SignedBy, " and ")
	switch {
	case r.Kind == proof.CertificateFile:
		c, verb := r.Certificate, "were"
		if r.Certificate.Events == 1 {
			verb = "was"
		}
		fmt.Fprintf(&b, "The certificate holds: %s of %s %s erased on %s, asked for as %s (tombstone %s, %s), %s\n",
			j17.Count(c.Events, "event"), j17.Count(r.Streams, "aggregate"), verb, when(c.ExecutedAt), c.Key,
			c.TombstoneID, cmp.Or(c.LegalBasis, "no legal basis given"), signed)
	case r.Kind == proof.CheckpointFile:
		fmt.Fprintf(&b, "The checkpoint holds: %s has %s with the root %s, %s\n", r.Origin, j17.Count(r.Size, "event"), r.Root, signed)
	case r.Whole:
		fmt.Fprintf(&b, "The export holds: all %s of %s, in %s, %d of them erased, with the root %s, %s\n", j17.Count(r.Events, "event"), r.Origin, j17.Count(r.Streams, "aggregate"), r.Erased, r.Root, signed)
	default:
		fmt.Fprintf(&b, "The chains of %s in %s hold. Nothing in this file is signed: it is a part of an export, or one that was cut off.\n", j17.Count(r.Events, "event"), j17.Count(r.Streams, "aggregate"))
	}
	if r.Kind == proof.CertificateFile && r.Certificate.Forced {
		fmt.Fprintf(&b, "It was forced before its time: it could have been cancelled until %s.\n", when(r.Certificate.ExecutableAt))
	}
	if r.Kind == proof.CertificateFile {
		b.WriteString(removal(r.Certificate))
	}
	if r.Kind == proof.CertificateFile && !r.AllStreams {
		fmt.Fprintf(&b, "It lists %d of these aggregates. Hold the list of all against it with --streams.\n", len(r.Certificate.Streams))
	}
	if r.Partly > 0 {
		fmt.Fprintf(&b, "Of %s it does not have the beginning: what was before that was not verified.\n", j17.Count(r.Partly, "aggregate"))
	}
	if r.OwnKey {
		b.WriteString("The key is the one that the file brings along. Give the one that you know with --key to see whom it is from.\n")
	}
	if r.Extends != nil {
		fmt.Fprintf(&b, "It extends the older checkpoint of %s.\n", j17.Count(*r.Extends, "event"))
	}
	return b.String()
}

// removal says how what a certificate is about was removed from disk, "" for a certificate that does not say so.
func removal(c *proof.Certificate) string {
	var b strings.Builder
	if c.LSN != "" {
		fmt.Fprintf(&b, "The place lsn is %s.", plain(c.LSN))
	}
	if len(c.Servers) > 0 {
		fmt.Fprintf(&b, " Looked at: %s.", plain(strings.Join(c.Servers, "; ")))
	}
	if len(c.Unseen) > 0 {
		fmt.Fprintf(&b, " Not looked at: %s.", plain(strings.Join(c.Unseen, "; ")))
	}
	var lines strings.Builder
	for _, sentence := range []string{plain(c.Method), strings.TrimSpace(b.String()), plain(c.Remains)} {
		if sentence != "" {
			lines.WriteString(sentence + "\n")
		}
	}
	return lines.String()
}
