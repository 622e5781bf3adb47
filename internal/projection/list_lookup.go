package projection

import (
	"context"

	"j17"
)

type view struct{}

func (*view) Close()                 {}
func (*view) Position() j17.StreamID { return j17.StreamID{} }

func (s *Service) view(context.Context, *reading, *definition) (*view, error) {
	return nil, j17.Errorf(j17.CodeIndexNotReady, "Indexes are not served yet")
}
func (p *plan) scan(context.Context, *view, string, int) ([]found, error) { return nil, nil }
func (p *plan) countIn(context.Context, *view) (uint64, error)            { return 0, nil }
