var e=`{
  "agent_types": ["person", "clerk"],
  "project_key": "LED",
  "$defs": {"amount": {"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.01}},
  "aggregate_types": {
    "account": {
      "identity": {"sequence": true},
      "events": {
        "was_opened": {
          "creates": "only",
          "schema": {
            "type": "object",
            "properties": {
              "name": {"type": "string", "minLength": 1, "maxLength": 100},
              "owner": {"type": "string", "format": "uuid"},
              "currency": {"type": "string", "pattern": "^[A-Z]{3}$"},
              "fee_rate": {"type": "number", "minimum": 0, "maximum": 0.1}
            },
            "required": ["name", "owner", "currency", "fee_rate"],
            "additionalProperties": false
          },
          "unique": {
            "name": {"value": {"$lower": {"$trim": "$.data.name"}}, "scope": "$.data.owner"}
          },
          "handler": [
            {"set": {"target": "", "value": "$.data"}},
            {"set": {"target": "key", "value": "$.key"}},
            {"set": {"target": "status", "value": "open"}},
            {"set": {"target": "balance", "value": 0}}
          ]
        },
        "was_closed": {
          "creates": false,
          "schema": {"type": "object", "additionalProperties": false},
          "requires": [
            {
              "that": {"equals": ["@.status", "open"]},
              "message": "The account is closed.",
              "code": "closed"
            },
            {
              "that": {"equals": ["@.balance", 0]},
              "message": {
                "$concat": [
                  "There are ",
                  "@.balance",
                  " ",
                  "@.currency",
                  " on the account. Send them elsewhere first."
                ]
              },
              "code": "not_empty"
            }
          ],
          "releases": ["name"],
          "handler": {"set": {"target": "status", "value": "closed"}}
        },
        "had_deposit": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {"amount": {"$ref": "#/$defs/amount"}},
            "required": ["amount"],
            "additionalProperties": false
          },
          "requires": [
            {
              "that": {"equals": ["@.status", "open"]},
              "message": "The account is closed.",
              "code": "closed"
            }
          ],
          "handler": {"increment": {"target": "balance", "by": "$.data.amount"}}
        },
        "was_withdrawn": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {"amount": {"$ref": "#/$defs/amount"}},
            "required": ["amount"],
            "additionalProperties": false
          },
          "requires": [
            {
              "that": {"equals": ["@.status", "open"]},
              "message": "The account is closed.",
              "code": "closed"
            },
            {
              "that": {"gte": ["@.balance", "$.data.amount"]},
              "message": {
                "$concat": [
                  "The balance is ",
                  "@.balance",
                  ", and ",
                  "$.data.amount",
                  " are asked for."
                ]
              },
              "code": "insufficient_funds"
            }
          ],
          "handler": {"decrement": {"target": "balance", "by": "$.data.amount"}}
        },
        "was_sent": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {
              "to": {"type": "string", "minLength": 1},
              "amount": {"$ref": "#/$defs/amount"}
            },
            "required": ["to", "amount"],
            "additionalProperties": false
          },
          "reads": {"payee": {"aggregate_type": "account", "id": "$.data.to"}},
          "requires": [
            {
              "that": {"equals": ["@.status", "open"]},
              "message": "The account is closed.",
              "code": "closed"
            },
            {
              "that": {"equals": ["$.reads.payee.status", "open"]},
              "message": {"$concat": ["There is no open account ", "$.data.to", "."]},
              "code": "no_payee"
            },
            {
              "that": {"not_equals": ["$.reads.payee.key", "$.key"]},
              "message": "That is the account that the money comes from.",
              "code": "same_account"
            },
            {
              "that": {"equals": ["$.reads.payee.currency", "@.currency"]},
              "message": {
                "$concat": [
                  "That account is in ",
                  "$.reads.payee.currency",
                  ", this one in ",
                  "@.currency",
                  "."
                ]
              },
              "code": "other_currency"
            },
            {
              "that": {"gte": ["@.balance", "$.data.amount"]},
              "message": {
                "$concat": [
                  "The balance is ",
                  "@.balance",
                  ", and ",
                  "$.data.amount",
                  " are asked for."
                ]
              },
              "code": "insufficient_funds"
            }
          ],
          "handler": {"decrement": {"target": "balance", "by": "$.data.amount"}},
          "implications": [
            {
              "emit": {
                "aggregate_type": "account",
                "id": "$.data.to",
                "event_type": "was_received",
                "data": {"amount": "$.data.amount", "from": "$.key"}
              }
            },
            {
              "condition": {"gt": ["$.state.fee_rate", 0]},
              "emit": {
                "aggregate_type": "account",
                "id": "$.id",
                "event_type": "had_fee",
                "data": {
                  "amount": {
                    "$round": {"$multiply": ["$.data.amount", "$.state.fee_rate"]},
                    "scale": 2,
                    "rounding": "half_up"
                  }
                }
              }
            }
          ]
        },
        "was_received": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {
              "amount": {"type": "number", "exclusiveMinimum": 0},
              "from": {"type": "string"}
            },
            "required": ["amount", "from"],
            "additionalProperties": false
          },
          "handler": {"increment": {"target": "balance", "by": "$.data.amount"}}
        },
        "had_fee": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {"amount": {"type": "number", "minimum": 0, "multipleOf": 0.01}},
            "required": ["amount"],
            "additionalProperties": false
          },
          "requires": [
            {
              "that": {"gte": ["@.balance", "$.data.amount"]},
              "message": {
                "$concat": [
                  "The balance after that is ",
                  "@.balance",
                  ", which does not cover the fee of ",
                  "$.data.amount",
                  "."
                ]
              },
              "code": "insufficient_funds"
            }
          ],
          "handler": {"decrement": {"target": "balance", "by": "$.data.amount"}},
          "implications": [
            {
              "emit": {
                "aggregate_type": "till",
                "id": "global",
                "event_type": "had_income",
                "data": {"amount": "$.data.amount", "of": "$.key"}
              }
            }
          ]
        }
      }
    },
    "till": {
      "events": {
        "had_income": {
          "schema": {
            "type": "object",
            "properties": {"amount": {"type": "number"}, "of": {"type": "string"}},
            "required": ["amount", "of"],
            "additionalProperties": false
          },
          "handler": [
            {"increment": {"target": "income", "by": "$.data.amount"}},
            {"increment": {"target": "fees", "by": 1}}
          ]
        }
      }
    }
  }
}
`;export{e as default};