package usage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"j17"
	"j17/internal/base/wire"
	"j17/internal/core/worker"
	"j17/internal/storage/store"
)

// alertSpace holds the alerts that were raised under "<instance>/<month>/<metric>/<limit>/<threshold>". An alert is due
// until every channel has it.
const alertSpace store.Space = "usage.alerts"

// thresholds are the parts of a plan's limit, in percent, that raise an alert.
func thresholds() []int64 { return []int64{100, 80, 50} }

// Alert says that an instance has used up a part of its plan.
type Alert struct {
	// Instance is the instance's handle.
	Instance string `json:"instance_id"`
	Name     string `json:"instance"`
	Plan     string `json:"plan"`
	// Period is the calendar month (UTC).
	Period string `json:"period"`
	// Metric is "events" or "storage_bytes".
	Metric string `json:"metric"`
	// Threshold is the part of the limit in percent that was reached.
	Threshold int64     `json:"threshold"`
	Used      int64     `json:"used"`
	Limit     int64     `json:"limit"`
	At        time.Time `json:"at"`
}

// Summary describes the alert in a sentence.
func (a Alert) Summary() string {
	what := strconv.FormatInt(a.Used, 10) + " of " + strconv.FormatInt(a.Limit, 10) + " events in " + a.Period
	if a.Metric == metricStorage {
		what = strconv.FormatInt(a.Used, 10) + " of " + strconv.FormatInt(a.Limit, 10) + " bytes of storage"
	}
	return fmt.Sprintf("Instance %s has used %d %% of its plan %q: %s.", a.Name, a.Threshold, a.Plan, what)
}

// The metrics.
const (
	metricEvents  = "events"
	metricStorage = "storage_bytes"
)

// Channel is a way to deliver alerts.
type Channel struct {
	// Name identifies the channel, in the log and in stored alerts; it must stay the same.
	Name string
	// Send delivers an alert. It may be called again for the same alert after a failure.
	Send func(context.Context, Alert) error
}

// raised is an alert and the state of its delivery.
type raised struct {
	Alert
	// Waiting are the channels that do not have it yet.
	Waiting []string `json:"waiting"`
}

// Limits of deliveries.
const (
	deliverLease  = 2 * time.Minute
	deliverAtOnce = 4
	sendTime      = 30 * time.Second
	keepAlerts    = 62 * 24 * time.Hour
)

// deliveries are the alerts that channels wait for. They are tried again after a minute, two, four, and so on.
func (m *Meter) deliveries(st store.Sides) worker.Work {
	return worker.Work{
		Name: "usage_alerts", Store: st, Space: alertSpace, Lease: deliverLease, AtOnce: deliverAtOnce,
		Each:  deliverAtOnce,
		Retry: worker.Backoff{First: time.Minute, Longest: 2 * time.Hour, Attempts: 8}, Do: m.deliver,
	}
}

// key identifies an alert: each is raised once.
func (a Alert) key() string {
	return a.Instance + "/" + a.Period + "/" + a.Metric + "/" + strconv.FormatInt(a.Limit, 10) + "/" +
		strconv.FormatInt(a.Threshold, 10)
}

// check raises the alerts that are due for the use of an instance, of each metric the highest one. The caller holds
// flushing.
func (m *Meter) check(ctx context.Context, instance string) error {
	i, ok := m.registry.Instances.ByID(instance)
	if !ok {
		return nil
	}
	used, err := m.month(ctx, instance)
	if err != nil {
		return err
	}
	if m.raisedMonth != used.Period {
		clear(m.raised)
		m.raisedMonth = used.Period
	}
	for metric, a := range map[string]wire.Amount{metricEvents: used.Events, metricStorage: used.Storage} {
		reached := slices.IndexFunc(thresholds(), func(t int64) bool { return a.Limit > 0 && a.Percent >= t })
		if reached < 0 {
			continue
		}
		alert := Alert{
			Instance: instance, Name: i.Name, Plan: m.registry.Instances.PlanOf(instance).Name, Period: used.Period,
			Metric: metric, Threshold: thresholds()[reached], Used: a.Used, Limit: a.Limit,
			At: m.clock.Now().UTC().Truncate(time.Second),
		}
		if err := m.raise(ctx, alert); err != nil {
			return err
		}
	}
	return nil
}

// raise stores an alert for delivery and logs it, once.
func (m *Meter) raise(ctx context.Context, a Alert) error {
	key := a.key()
	if m.raised[key] {
		return nil
	}
	r := raised{Alert: a}
	for _, c := range m.channels {
		r.Waiting = append(r.Waiting, c.Name)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	now := m.clock.Now()
	side := store.Side{
		Op: store.Put, Space: alertSpace, Key: key, Value: raw, Cond: store.IfAbsent, Expires: now.Add(keepAlerts),
	}
	if len(r.Waiting) > 0 {
		side.Due = now
	}
	err = m.store.Write(ctx, j17.System, []store.Side{side})
	if _, ok := errors.AsType[*store.SideConflict](err); ok {
		err = nil // raised before the last restart
	} else if err == nil {
		m.logger.LogAttrs(ctx, slog.LevelWarn, "usage of a plan", slog.String("instance", a.Name),
			slog.String("instance_id", a.Instance),
			slog.String("plan", a.Plan), slog.String("metric", a.Metric), slog.Int64("threshold_percent", a.Threshold),
			slog.Int64("used", a.Used), slog.Int64("limit", a.Limit))
	}
	if err == nil {
		m.raised[key] = true
	}
	return err
}

// deliver sends an alert to the channels that do not have it yet.
func (m *Meter) deliver(ctx context.Context, c *worker.Claim) error {
	var r raised
	if err := json.Unmarshal(c.Value, &r); err != nil {
		return &store.CorruptionError{Where: string(alertSpace) + "/" + c.Key, Err: err}
	}
	failed := m.send(ctx, &r)
	raw, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if failed != nil {
		c.Value = raw
		return failed
	}
	return m.store.Write(ctx, c.Tenant, []store.Side{c.Replace(raw, time.Time{})})
}

// send tries every waiting channel.
func (m *Meter) send(ctx context.Context, r *raised) error {
	var waiting []string
	var errs []error
	for _, c := range m.channels {
		if !slices.Contains(r.Waiting, c.Name) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, sendTime)
		err := c.Send(limited, r.Alert)
		cancel()
		if err != nil {
			waiting = append(waiting, c.Name)
			errs = append(errs, fmt.Errorf("the alert could not be delivered by %s: %w", c.Name, err))
		}
	}
	r.Waiting = waiting
	return errors.Join(errs...)
}

// Deliver sends the alerts that are due now, as Run does.
func (m *Meter) Deliver(ctx context.Context) error { return m.alerts.Settle(ctx) }
