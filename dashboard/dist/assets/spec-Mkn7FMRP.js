var e=`{
  "agent_types": ["customer", "clerk", "bank"],
  "singletons": ["bank_feed"],
  "aggregate_types": {
    "cart": {
      "events": {
        "had_item_added": {
          "schema": {
            "type": "object",
            "properties": {
              "product_id": {"type": "string", "format": "uuid"},
              "quantity": {"type": "integer", "minimum": 1}
            },
            "required": ["product_id", "quantity"],
            "additionalProperties": false
          },
          "handler": [{"append": {"target": "items", "value": "$.data"}}]
        },
        "checkout_started": {
          "schema": {
            "type": "object",
            "properties": {
              "order_id": {"type": "string", "format": "uuid"},
              "payment_id": {"type": "string", "format": "uuid"},
              "parcel_id": {"type": "string", "format": "uuid"},
              "product_id": {"type": "string", "format": "uuid"},
              "quantity": {"type": "integer", "minimum": 1},
              "total": {"type": "number", "multipleOf": 0.01},
              "address": {"type": "string"}
            },
            "required": ["order_id", "payment_id", "parcel_id", "product_id", "quantity", "total"],
            "additionalProperties": false
          },
          "handler": [{"set": {"target": "order_id", "value": "$.data.order_id"}}]
        }
      }
    },
    "product": {
      "events": {
        "was_stocked": {
          "schema": {
            "type": "object",
            "properties": {"quantity": {"type": "integer", "minimum": 1}},
            "required": ["quantity"]
          },
          "handler": [{"increment": {"target": "available", "by": "$.data.quantity"}}]
        },
        "reservation_requested": {
          "schema": {
            "type": "object",
            "properties": {
              "order_id": {"type": "string"},
              "quantity": {"type": "integer", "minimum": 1}
            },
            "required": ["order_id", "quantity"]
          },
          "handler": [{"set": {"target": "asked_by", "value": "$.data.order_id"}}],
          "implications": [
            {
              "condition": {"gte": ["$.state.available", "$.data.quantity"]},
              "emit": {
                "aggregate_type": "product",
                "id": "$.key",
                "event_type": "was_reserved",
                "data": {"order_id": "$.data.order_id", "quantity": "$.data.quantity"}
              }
            },
            {
              "condition": {"not": {"gte": ["$.state.available", "$.data.quantity"]}},
              "emit": {
                "aggregate_type": "product",
                "id": "$.key",
                "event_type": "reservation_failed",
                "data": {"order_id": "$.data.order_id"}
              }
            }
          ]
        },
        "was_reserved": {
          "schema": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "quantity": {"type": "integer"}},
            "required": ["order_id", "quantity"]
          },
          "handler": [
            {"decrement": {"target": "available", "by": "$.data.quantity"}},
            {"append": {"target": "reserved", "value": "$.data"}}
          ]
        },
        "reservation_failed": {
          "schema": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}},
            "required": ["order_id"]
          },
          "handler": [{"append": {"target": "missed", "value": "$.data.order_id"}}]
        },
        "reservation_released": {
          "schema": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "quantity": {"type": "integer"}},
            "required": ["order_id", "quantity"]
          },
          "handler": [
            {"increment": {"target": "available", "by": "$.data.quantity"}},
            {
              "remove": {
                "target": "reserved",
                "match": {"equals": ["$item.order_id", "$.data.order_id"]}
              }
            }
          ]
        }
      }
    },
    "payment": {
      "events": {
        "charge_requested": {
          "schema": {
            "type": "object",
            "properties": {"amount": {"type": "number"}, "order_id": {"type": "string"}},
            "required": ["amount", "order_id"]
          },
          "handler": [
            {"merge": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "asked"}}
          ]
        },
        "was_charged": {
          "schema": {
            "type": "object",
            "properties": {"transaction_id": {"type": "string"}},
            "required": ["transaction_id"]
          },
          "handler": [
            {"merge": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "charged"}}
          ]
        },
        "charge_failed": {
          "schema": {
            "type": "object",
            "properties": {"reason": {"type": "string"}},
            "required": ["reason"]
          },
          "handler": [
            {"merge": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "declined"}}
          ]
        },
        "refund_requested": {
          "schema": {
            "type": "object",
            "properties": {"why": {"type": "string"}},
            "required": ["why"]
          },
          "handler": [
            {"merge": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "refund asked"}}
          ]
        }
      }
    },
    "parcel": {
      "events": {
        "was_ordered": {
          "schema": {
            "type": "object",
            "properties": {"order_id": {"type": "string"}, "address": {"type": ["string", "null"]}},
            "required": ["order_id", "address"]
          },
          "requires": [
            {
              "that": {"not_equals": ["$.data.address", null]},
              "code": "no_address",
              "message": "A parcel needs an address."
            }
          ],
          "handler": [{"merge": {"target": "", "value": "$.data"}}]
        }
      }
    },
    "order": {
      "events": {
        "checkout_ended": {
          "schema": {
            "type": "object",
            "properties": {
              "payment": {"type": "string"},
              "transaction_id": {"type": ["string", "null"]}
            },
            "required": ["payment"]
          },
          "handler": [
            {"merge": {"target": "", "value": "$.data"}},
            {
              "set": {
                "target": "status",
                "value": {
                  "$if": {"equals": ["$.data.payment", "was_charged"]},
                  "then": "placed",
                  "else": "rejected"
                }
              }
            }
          ]
        },
        "checkout_failed": {
          "schema": {
            "type": "object",
            "properties": {
              "step": {"type": "string"},
              "code": {"type": "string"},
              "requirement": {"type": ["string", "null"]},
              "why": {"type": "string"}
            },
            "required": ["step", "code", "why"]
          },
          "handler": [
            {"merge": {"target": "", "value": "$.data"}},
            {
              "set": {
                "target": "status",
                "value": {
                  "$if": {"equals": ["$.data.requirement", "no_address"]},
                  "then": "address missing",
                  "else": "failed"
                }
              }
            }
          ]
        },
        "was_out_of_stock": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [{"set": {"target": "status", "value": "out of stock"}}]
        }
      }
    }
  },
  "modules": {
    "sagas": {
      "checkout": {
        "trigger": {"aggregate_type": "cart", "event_type": "checkout_started"},
        "steps": [
          {
            "name": "reserve",
            "emit": {
              "aggregate_type": "product",
              "id": "$.data.product_id",
              "event_type": "reservation_requested",
              "data": {"order_id": "$.data.order_id", "quantity": "$.data.quantity"}
            },
            "await": {
              "aggregate_type": "product",
              "event_types": ["was_reserved", "reservation_failed"]
            },
            "timeout_ms": 30000,
            "compensate": {
              "aggregate_type": "product",
              "id": "$.data.product_id",
              "event_type": "reservation_released",
              "data": {"order_id": "$.data.order_id", "quantity": "$.data.quantity"}
            }
          },
          {
            "name": "turn_down",
            "condition": {"equals": ["$prev.type", "reservation_failed"]},
            "emit": {
              "aggregate_type": "order",
              "id": "$.data.order_id",
              "event_type": "was_out_of_stock",
              "data": {}
            }
          },
          {
            "name": "charge",
            "condition": {"equals": ["$prev.type", "was_reserved"]},
            "emit": {
              "aggregate_type": "payment",
              "id": "$.data.payment_id",
              "event_type": "charge_requested",
              "data": {"amount": "$.data.total", "order_id": "$.data.order_id"}
            },
            "await": {"aggregate_type": "payment", "event_types": ["was_charged", "charge_failed"]},
            "timeout_ms": 900000,
            "compensate": {
              "aggregate_type": "payment",
              "id": "$.data.payment_id",
              "event_type": "refund_requested",
              "data": {"why": "$error.message"}
            }
          },
          {
            "name": "release",
            "condition": {"equals": ["$prev.type", "charge_failed"]},
            "emit": {
              "aggregate_type": "product",
              "id": "$.data.product_id",
              "event_type": "reservation_released",
              "data": {"order_id": "$.data.order_id", "quantity": "$.data.quantity"}
            }
          },
          {
            "name": "pack",
            "condition": {"equals": ["$context.charge.type", "was_charged"]},
            "emit": {
              "aggregate_type": "parcel",
              "id": "$.data.parcel_id",
              "event_type": "was_ordered",
              "data": {"order_id": "$.data.order_id", "address": "$.data.address"}
            }
          }
        ],
        "on_complete": {
          "condition": {"equals": ["$context.reserve.type", "was_reserved"]},
          "aggregate_type": "order",
          "id": "$.data.order_id",
          "event_type": "checkout_ended",
          "data": {
            "payment": "$context.charge.type",
            "transaction_id": "$context.charge.data.transaction_id"
          }
        },
        "on_failed": {
          "aggregate_type": "order",
          "id": "$.data.order_id",
          "event_type": "checkout_failed",
          "data": {
            "step": "$error.step",
            "code": "$error.code",
            "requirement": "$error.requirement",
            "why": "$error.message"
          }
        }
      }
    }
  }
}
`;export{e as default};