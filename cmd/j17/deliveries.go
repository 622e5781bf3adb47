package main

import (
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"j17/internal/base/wire"
)

func listenerDeliveriesCommand(e *env) *cobra.Command {
	return group("deliveries", "What listeners were told, and what they answered", deliveriesListCommand(e), deliveriesShowCommand(e), deliveriesRetryCommand(e))
}

func deliveriesListCommand(e *env) *cobra.Command {
	return listCommand(e, listing[wire.Delivery]{
		short: "List deliveries, newest first", example: "  j17 listener deliveries list --listener accounting --status failed",
		path: "deliveries", header: deliveryHeader(), describe: describeDelivery, limit: newestRows,
		filters: []rowFilter{
			withStatus("pending", "delivered", "failed"),
			{name: "listener", usage: "only those of a listener, by its `name`"},
			{name: "key", usage: "only those of events of an aggregate, by its `key`: type:id"},
		},
	})
}

func deliveryHeader() []string {
	return []string{"id", "listener", "status", "attempts", "answer", "event", "created", "next attempt"}
}

func describeDelivery(d wire.Delivery) []string {
	next := ""
	if d.NextAttemptAt != nil {
		next = when(*d.NextAttemptAt)
	}
	return []string{
		d.ID, d.Listener, d.Status, strconv.Itoa(d.Attempts), answerOf(d.LastStatus, d.LastError),
		d.Event.Key + " " + d.Event.Type, when(d.CreatedAt), next,
	}
}

// answerOf describes the outcome of a try: its status, or why there was none.
func answerOf(status *int, fault *string) string {
	switch {
	case status != nil:
		return strconv.Itoa(*status)
	case fault != nil:
		return *fault
	default:
		return ""
	}
}

func deliveriesShowCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.DeliveryShown]{
		use: "show ID", short: "Show a delivery with each of its attempts", example: "  j17 listener deliveries show dlv_4k7vx9tz2nqr8w3",
		long:   "Show a delivery with each of its attempts and the beginning of the answer. --json adds the message that was sent.",
		method: http.MethodGet, path: "deliveries/{}", show: printDelivery,
	})
}

func deliveriesRetryCommand(e *env) *cobra.Command {
	return verbCommand(e, verb[wire.DeliveryShown]{
		use: "retry ID", short: "Send the message of a delivery again", example: "  j17 listener deliveries retry dlv_4k7vx9tz2nqr8w3",
		long: `Send the message of a delivery again, under the same id, whatever its outcome. One that waits for its next attempt is sent at once. Exit
code 4: the listener is paused, disabled or no longer in the spec.`,
		method: http.MethodPost, path: "deliveries/{}/retry", show: printDelivery,
	})
}

// printDelivery prints a delivery with its tries.
func printDelivery(e *env, shown wire.DeliveryShown) error {
	d := &shown.Delivery
	if err := e.printTable(deliveryHeader(), [][]string{describeDelivery(*d)}); err != nil {
		return err
	}
	tries := make([][]string, len(d.Log))
	for i, try := range d.Log {
		tries[i] = []string{
			when(try.At), answerOf(try.Status, try.Error), strconv.FormatFloat(try.Millis, 'f', 1, 64) + " ms",
			try.Response,
		}
	}
	return e.printFurther([]string{"at", "answer", "after", "response"}, tries)
}
