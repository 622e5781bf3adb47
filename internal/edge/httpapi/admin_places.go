package httpapi

import (
	"net/http"

	"j17/internal/base/wire"
)

// describePlaces is GET places.
func (c *call) describePlaces(w http.ResponseWriter) error {
	all, under, err := c.api.Places.Describe(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	answer := wire.Places{Places: []wire.PlacesOfKind{}}
	for _, d := range all {
		kind := wire.PlacesOfKind{Type: d.Type, Geo: d.Geo, Shape: d.Shape, Status: "ready"}
		if !d.Ready {
			kind.Status = "building"
		}
		if d.Build != nil {
			kind.Build = &wire.Build{Status: string(d.Build.State), Error: d.Build.Error, Done: d.Build.Done, Total: d.Build.Total}
		}
		answer.Places = append(answer.Places, kind)
	}
	if under != nil {
		answer.Verification = &wire.Verification{Done: under.Done, Total: under.Total}
	}
	return c.answer(w, http.StatusOK, answer)
}

// verifyPlaces is POST places/verify.
func (c *call) verifyPlaces(w http.ResponseWriter) error {
	var none struct{}
	if err := c.decodeOptional(w, &none); err != nil {
		return err
	}
	c.allowTime(w, transferTime)
	found, err := c.api.Places.Verify(c.request.Context(), c.tenant)
	if err != nil {
		return err
	}
	answer := wire.VerifiedPlaces{Verified: found.Difference == nil, Position: found.Position.PositionText(), Aggregates: found.Aggregates, Entries: found.Entries}
	if d := found.Difference; d != nil {
		answer.Difference = &wire.PlaceDifference{Type: d.Type, ID: d.ID, Geo: d.Geo, What: d.What}
	}
	return c.answer(w, http.StatusOK, answer)
}
