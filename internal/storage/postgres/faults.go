package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"j17/internal/storage/store"
)

// sqlState returns the SQLSTATE of an error that the server has reported, "" for any other error.
func sqlState(err error) string {
	if said, is := errors.AsType[*pgconn.PgError](err); is {
		return said.Code
	}
	return ""
}

// classOf returns the class of such an error: the first two characters of its SQLSTATE.
func classOf(err error) string {
	if code := sqlState(err); len(code) == 5 {
		return code[:2]
	}
	return ""
}

// broken reports whether an error is that of a connection, so that the statement can be retried on a new one.
func broken(err error) bool {
	switch classOf(err) {
	case "08":
		return true
	case "57":
		return sqlState(err) != "57014" // the statement was cancelled
	case "25":
		return sqlState(err) == "25006" // the server no longer takes writes
	case "":
	default:
		return false
	}
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	_, warned := errors.AsType[*warnedError](err)
	_, network := errors.AsType[net.Error](err)
	return connecting || warned || network || pgconn.SafeToRetry(err) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errMoved)
}

// crowded reports whether an error says that the server has no connection left.
func crowded(err error) bool { return sqlState(err) == "53300" }

// raced reports whether a statement was in conflict with another one, and may succeed when it is retried.
func raced(err error) bool { return classOf(err) == "40" && sqlState(err) != "40003" }

// isFull reports whether an error says that the server has no disk space left.
func isFull(err error) bool { return sqlState(err) == "53100" }

// isUnique reports whether an error says that a row exists already.
func isUnique(err error) bool { return sqlState(err) == "23505" }

// refused reports whether a statement has certainly changed nothing: it was not sent, or the server has answered that
// it failed and keeps the session. After all other errors the outcome is unknown.
func refused(err error) bool {
	if pgconn.SafeToRetry(err) {
		return true
	}
	said, is := errors.AsType[*pgconn.PgError](err)
	return is && said.SeverityUnlocalized == "ERROR" && said.Code != "40003" // completion unknown
}

// fault returns the error of a statement in the form in which the store returns it.
func fault(what string, err error) error {
	switch {
	case err == nil || errors.Is(err, store.ErrBusy):
		return err
	case isFull(err):
		return fmt.Errorf("%w: %s: %v", store.ErrFull, what, err) //nolint:errorlint // the call can be retried
	}
	switch sqlState(err) {
	case "XX001", "XX002":
		return &store.CorruptionError{Where: what, Err: err}
	case "25006":
		return busy(what, err)
	}
	switch classOf(err) {
	case "53", "57", "08", "40":
		return busy(what, err)
	case "":
		if broken(err) && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
			return busy(what, err)
		}
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// busy returns store.ErrBusy with the text of a cause, which it does not wrap: the call can be retried.
func busy(what string, cause error) error {
	lack := &store.LackError{Of: store.OfDatabase, Why: fmt.Sprintf("%s: %v", what, cause)}
	if crowded(cause) {
		lack.Of = store.OfConnections
	}
	return lack
}
