package worker

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"j17/internal/storage/store"
)

// Attempts describes the failed tries of an item. From the first failure on, it is stored in front of the item's value;
// code that writes items writes plain values.
type Attempts struct {
	// Failed counts the tries that failed.
	Failed int `json:"failed"`
	// Error is the error of the last one, cut to maxError bytes.
	Error string `json:"error"`
	// DeadAt is when the item was given up; the zero time while it was not.
	DeadAt time.Time `json:"dead_at,omitzero"`
}

const (
	// mark is the first byte of a value with attempts. No JSON text and no UTF-8 text that people write begins with it.
	mark = 0x01
	// maxError bounds the text of an error that is kept.
	maxError = 1000
)

// ReadAttempts splits the value of an item into its attempts and the plain value, which shares the memory of value.
func ReadAttempts(value []byte) (Attempts, []byte, error) {
	var a Attempts
	if len(value) == 0 || value[0] != mark {
		return a, value, nil
	}
	head, rest, ok := bytes.Cut(value[1:], []byte("\n"))
	if !ok {
		return a, nil, errors.New("the attempts of an item have no end")
	}
	return a, rest, json.Unmarshal(head, &a)
}

// Decode decodes the JSON that a value has after its attempts. The error is a *store.CorruptionError.
func Decode[T any](space store.Space, key string, value []byte) (v T, err error) {
	_, raw, err := ReadAttempts(value)
	if err != nil {
		return v, &store.CorruptionError{Where: string(space) + "/" + key, Err: err}
	}
	return store.Decode[T](space, &store.Item{Key: key, Value: raw})
}

// with returns a value with the attempts in front of it.
func (a Attempts) with(value []byte) []byte {
	if len(a.Error) > maxError {
		a.Error = a.Error[:maxError]
	}
	head, _ := json.Marshal(a) // numbers, text and a time: it cannot fail
	return append(append(append([]byte{mark}, head...), '\n'), value...)
}
