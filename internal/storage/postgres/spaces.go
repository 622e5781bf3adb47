package postgres

import (
	"context"
	"errors"
	"sync"

	"github.com/jackc/pgx/v5"

	"j17/internal/storage/store"
)

// spaces has the numbers of spaces. A space gets its number at the first write to it, and keeps it.
type spaces struct {
	*core

	mu      sync.Mutex
	numbers map[store.Space]int16
	names   map[int16]store.Space
}

// load reads the numbers that were assigned so far.
func (s *spaces) load(ctx context.Context) error {
	return s.read(ctx, "the names of spaces", func(conn reading) error {
		rows, err := conn.Query(ctx, `SELECT space, name FROM spaces`)
		if err != nil {
			return err
		}
		numbers, names := map[store.Space]int16{}, map[int16]store.Space{}
		var number int16
		var name []byte
		_, err = pgx.ForEachRow(rows, []any{&number, &name}, func() error {
			numbers[store.Space(name)], names[number] = number, store.Space(name)
			return nil
		})
		if err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.numbers, s.names = numbers, names
		return nil
	})
}

// noSpace is the number of a space that was never written to.
const noSpace = int16(0)

// number returns the number of a space, noSpace if nothing was ever written to it. Where stores share a schema, another
// one may have been the first to write.
func (s *spaces) number(ctx context.Context, name store.Space) (int16, error) {
	s.mu.Lock()
	number := s.numbers[name]
	s.mu.Unlock()
	if number != noSpace || !s.o.Shared {
		return number, nil
	}
	if err := s.load(ctx); err != nil {
		return noSpace, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.numbers[name], nil
}

// known returns the number of a space if this store has it in memory.
func (s *spaces) known(name store.Space) (number int16, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number, is = s.numbers[name]
	return number, is
}

// name returns the space with a number.
func (s *spaces) name(number int16) store.Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.names[number]
}

const newSpace = `INSERT INTO spaces (space, name) SELECT coalesce(max(space), 0) + 1, $1 FROM spaces
ON CONFLICT (name) DO NOTHING`

// give assigns a number to a space, if it has none.
func (s *spaces) give(ctx context.Context, name store.Space) error {
	for {
		if number, err := s.number(ctx, name); number != noSpace || err != nil {
			return err
		}
		err := s.execute(ctx, "a new space", newSpace, []byte(name))
		if isUnique(err) {
			err = nil // another space got the number
		}
		if err = errors.Join(err, s.load(ctx)); err != nil {
			return err
		}
	}
}
