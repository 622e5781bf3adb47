var e=`{
  "agent_types": ["shopper"],
  "aggregate_types": {
    "cart": {
      "events": {
        "had_item_added": {
          "schema": {
            "type": "object",
            "properties": {"item": {"type": "string"}},
            "required": ["item"],
            "additionalProperties": false
          },
          "handler": [{"append": {"target": "items", "value": "$.data.item"}}],
          "implications": [
            {
              "schedule": {
                "delay": "24h",
                "emit": {
                  "aggregate_type": "shopper",
                  "id": "$.metadata.actor.id",
                  "event_type": "had_reminder_due",
                  "data": {"cart": "$.id", "item": "$.data.item"}
                },
                "cancel_on": [
                  {"aggregate_type": "cart", "id": "$.key", "event_type": "had_item_added"},
                  {"aggregate_type": "cart", "id": "$.key", "event_type": "was_checked_out"}
                ]
              }
            }
          ]
        },
        "was_checked_out": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [{"set": {"target": "checked_out", "value": true}}]
        },
        "was_shipped": {
          "schema": {
            "type": "object",
            "properties": {"arrives_at": {"type": "string", "format": "date-time"}},
            "required": ["arrives_at"],
            "additionalProperties": false
          },
          "handler": [{"set": {"target": "arrives_at", "value": "$.data.arrives_at"}}],
          "implications": [
            {
              "schedule": {
                "at": "$.data.arrives_at",
                "before": "24h",
                "emit": {
                  "aggregate_type": "shopper",
                  "id": "$.metadata.actor.id",
                  "event_type": "had_delivery_due",
                  "data": {"cart": "$.id", "arrives_at": "$.data.arrives_at"}
                },
                "cancel_on": [
                  {"aggregate_type": "cart", "id": "$.key", "event_type": "was_shipped"}
                ]
              }
            }
          ]
        }
      }
    },
    "shopper": {
      "events": {
        "had_trial_started": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [{"set": {"target": "plan", "value": "trial"}}],
          "implications": [
            {
              "schedule": {
                "delay": "14d",
                "emit": {
                  "aggregate_type": "shopper",
                  "id": "$.key",
                  "event_type": "had_trial_ended"
                },
                "cancel_on": [
                  {"aggregate_type": "shopper", "id": "$.key", "event_type": "was_converted"}
                ]
              }
            }
          ]
        },
        "was_converted": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [{"set": {"target": "plan", "value": "paid"}}]
        },
        "had_trial_ended": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [{"set": {"target": "plan", "value": "none"}}]
        },
        "had_reminder_due": {
          "schema": {
            "type": "object",
            "properties": {"cart": {"type": "string"}, "item": {"type": "string"}},
            "required": ["cart", "item"],
            "additionalProperties": false
          },
          "handler": [{"append": {"target": "reminders", "value": "$.data"}}]
        },
        "had_delivery_due": {
          "schema": {
            "type": "object",
            "properties": {
              "cart": {"type": "string"},
              "arrives_at": {"type": "string", "format": "date-time"}
            },
            "required": ["cart", "arrives_at"],
            "additionalProperties": false
          },
          "handler": [{"append": {"target": "deliveries", "value": "$.data.cart"}}]
        },
        "had_digest_due": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [{"increment": {"target": "digests", "by": 1}}],
          "implications": [
            {
              "schedule": {
                "delay": "7d",
                "emit": {"aggregate_type": "shopper", "id": "$.key", "event_type": "had_digest_due"}
              }
            }
          ]
        }
      }
    }
  }
}
`;export{e as default};