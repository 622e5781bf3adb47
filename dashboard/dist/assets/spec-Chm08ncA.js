var e=`{
  "agent_types": ["customer", "clerk", "carrier"],
  "target_types": ["order"],
  "aggregate_types": {
    "order": {
      "events": {
        "was_placed": {
          "schema": {
            "type": "object",
            "properties": {
              "customer_id": {"type": "string", "format": "uuid"},
              "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
              "lines": {
                "type": "array",
                "items": {"$ref": "#/$defs/line"},
                "minItems": 1,
                "maxItems": 200
              }
            },
            "required": ["customer_id", "currency", "lines"],
            "additionalProperties": false,
            "$defs": {
              "line": {
                "type": "object",
                "properties": {
                  "sku": {"type": "string", "minLength": 1},
                  "title": {"type": "string", "minLength": 1},
                  "unit_price": {"type": "number", "minimum": 0, "multipleOf": 0.01},
                  "quantity": {"type": "integer", "minimum": 1}
                },
                "required": ["sku", "title", "unit_price", "quantity"],
                "additionalProperties": false
              }
            }
          },
          "handler": [
            {"set": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "open"}},
            {"set": {"target": "paid", "value": 0}},
            {"set": {"target": "placed_by", "value": "$.metadata.actor"}}
          ],
          "implications": [
            {
              "emit": {
                "aggregate_type": "customer",
                "id": "$.data.customer_id",
                "event_type": "had_order_placed",
                "data": {"order": "$.id", "currency": "$.data.currency"}
              }
            }
          ]
        },
        "had_line_changed": {
          "schema": {
            "type": "object",
            "properties": {
              "sku": {"type": "string", "minLength": 1},
              "title": {"type": "string", "minLength": 1},
              "unit_price": {"type": "number", "minimum": 0, "multipleOf": 0.01},
              "quantity": {"type": "integer", "minimum": 1}
            },
            "required": ["sku", "title", "unit_price", "quantity"],
            "additionalProperties": false
          },
          "handler": [
            {"upsert": {"target": "lines", "match": {"sku": "$.data.sku"}, "value": "$.data"}}
          ]
        },
        "had_line_removed": {
          "schema": {
            "type": "object",
            "properties": {"sku": {"type": "string", "minLength": 1}},
            "required": ["sku"],
            "additionalProperties": false
          },
          "handler": [{"remove": {"target": "lines", "where": {"sku": "$.data.sku"}}}]
        },
        "had_payment_received": {
          "schema": {
            "type": "object",
            "properties": {
              "amount": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01},
              "method": {"enum": ["card", "transfer", "voucher"]},
              "reference": {"type": "string"}
            },
            "required": ["amount", "method"],
            "additionalProperties": false
          },
          "handler": [
            {"increment": {"target": "paid", "by": "$.data.amount"}},
            {
              "increment_at": {
                "target": "paid_by_method",
                "key": "$.data.method",
                "by": "$.data.amount"
              }
            },
            {
              "append": {
                "target": "payments",
                "value": {
                  "$merge": [{"$": "$.data"}, {"received_at": {"$": "$.metadata.timestamp"}}]
                }
              }
            }
          ]
        },
        "was_shipped": {
          "schema": {
            "type": "object",
            "properties": {
              "parcel": {"type": "string", "minLength": 1},
              "skus": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "uniqueItems": true
              }
            },
            "required": ["parcel", "skus"],
            "additionalProperties": false
          },
          "handler": [
            {"set": {"target": "status", "value": "shipped"}},
            {
              "set_at": {
                "target": "parcels",
                "key": "$.data.parcel",
                "value": {"skus": "$.data.skus", "shipped_at": "$.metadata.timestamp"}
              }
            }
          ]
        },
        "was_delivered": {
          "schema": {
            "type": "object",
            "properties": {
              "parcel": {"type": "string", "minLength": 1},
              "signed_by": {"type": "string"}
            },
            "required": ["parcel"],
            "additionalProperties": false
          },
          "handler": [
            {
              "merge_at": {
                "target": "parcels",
                "key": "$.data.parcel",
                "value": {"delivered_at": "$.metadata.timestamp"}
              }
            },
            {
              "if": {
                "every": {
                  "in": "@.parcels.$entries",
                  "match": {"exists": "$item.value.delivered_at"}
                }
              },
              "then": [{"set": {"target": "status", "value": "delivered"}}]
            },
            {"set": {"target": "signed_by", "value": "$.data.signed_by?"}}
          ]
        },
        "was_cancelled": {
          "schema": {
            "type": "object",
            "properties": {"reason": {"type": "string", "minLength": 1}},
            "required": ["reason"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {"equals": ["@.status", "open"]},
              "then": [
                {"set": {"target": "status", "value": "cancelled"}},
                {
                  "set": {
                    "target": "cancelled",
                    "value": {"reason": "$.data.reason", "by": "$.metadata.actor.id"}
                  }
                }
              ]
            }
          ]
        },
        "had_note_added": {
          "allow_skip_occ": true,
          "schema": {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1, "maxLength": 2000}},
            "required": ["text"],
            "additionalProperties": false
          },
          "handler": [
            {
              "append": {
                "target": "notes",
                "value": {
                  "text": "$.data.text",
                  "by": "$.metadata.actor.id",
                  "at": "$.metadata.timestamp"
                }
              }
            }
          ]
        },
        "_was_tombstoned": {"handler": []}
      }
    },
    "customer": {
      "events": {
        "was_registered": {
          "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1}},
            "required": ["name"],
            "additionalProperties": false
          },
          "handler": [{"set": {"target": "name", "value": "$.data.name"}}]
        },
        "had_order_placed": {
          "schema": {
            "type": "object",
            "properties": {
              "order": {"type": "string", "format": "uuid"},
              "currency": {"type": "string", "pattern": "^[A-Z]{3}$"}
            },
            "required": ["order", "currency"],
            "additionalProperties": false
          },
          "handler": [
            {"append_unique": {"target": "orders", "value": "$.data.order"}},
            {"increment_at": {"target": "placed", "key": "$.data.currency", "by": 1}}
          ]
        }
      }
    },
    "shop": {
      "events": {
        "had_settings_changed": {
          "schema": {
            "type": "object",
            "properties": {
              "name": {"type": "string", "minLength": 1},
              "currencies": {
                "type": "array",
                "items": {"type": "string", "pattern": "^[A-Z]{3}$"},
                "uniqueItems": true
              }
            },
            "additionalProperties": false
          },
          "handler": {"merge": {"target": "", "value": "$.data"}}
        }
      }
    }
  },
  "modules": {"cache": ["order"]}
}
`;export{e as default};