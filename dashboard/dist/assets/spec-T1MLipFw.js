var e=`{
  "agent_types": ["guest", "box_office"],
  "aggregate_types": {
    "show": {
      "events": {
        "was_announced": {
          "creates": "only",
          "schema": {
            "type": "object",
            "properties": {
              "title": {"type": "string", "minLength": 1},
              "starts_at": {"type": "string", "format": "date-time"},
              "seats": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 10},
                "uniqueItems": true,
                "minItems": 1,
                "maxItems": 500
              }
            },
            "required": ["title", "starts_at", "seats"],
            "additionalProperties": false
          },
          "tags": {"show": "$.id"},
          "handler": [
            {"set": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "on"}}
          ]
        },
        "was_called_off": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {"reason": {"type": "string", "minLength": 1}},
            "required": ["reason"],
            "additionalProperties": false
          },
          "tags": {"show": "$.id", "called_off": "$.id"},
          "handler": [
            {"set": {"target": "status", "value": "off"}},
            {"set": {"target": "reason", "value": "$.data.reason"}}
          ]
        }
      }
    },
    "booking": {
      "events": {
        "was_made": {
          "creates": "only",
          "schema": {
            "type": "object",
            "properties": {
              "show": {"type": "string", "format": "uuid"},
              "seat": {"type": "string", "minLength": 1, "maxLength": 10},
              "guest": {"type": "string", "format": "uuid"}
            },
            "required": ["show", "seat", "guest"],
            "additionalProperties": false
          },
          "tags": {"show": "$.data.show", "seat": "$.data.seat", "guest": "$.data.guest"},
          "reads": {"show": {"aggregate_type": "show", "id": "$.data.show"}},
          "requires": [
            {
              "that": {"equals": ["$.reads.show.status", "on"]},
              "message": "There is no such show, or it was called off.",
              "code": "no_show"
            },
            {
              "that": {"in": ["$.data.seat", "$.reads.show.seats"]},
              "message": {"$concat": ["There is no seat ", "$.data.seat", "."]},
              "code": "no_seat"
            }
          ],
          "handler": [
            {"set": {"target": "", "value": "$.data"}},
            {"set": {"target": "status", "value": "booked"}}
          ]
        },
        "was_cancelled": {
          "creates": false,
          "schema": {
            "type": "object",
            "properties": {
              "show": {"type": "string", "format": "uuid"},
              "seat": {"type": "string", "minLength": 1, "maxLength": 10},
              "guest": {"type": "string", "format": "uuid"}
            },
            "required": ["show", "seat", "guest"],
            "additionalProperties": false
          },
          "tags": {"show": "$.data.show", "seat": "$.data.seat", "guest": "$.data.guest"},
          "requires": [
            {
              "that": {"equals": ["@.status", "booked"]},
              "message": "The booking was cancelled before.",
              "code": "cancelled"
            },
            {
              "that": {
                "and": [
                  {"equals": ["@.show", "$.data.show"]},
                  {"equals": ["@.seat", "$.data.seat"]},
                  {"equals": ["@.guest", "$.data.guest"]}
                ]
              },
              "message": "The booking is of another show, seat or guest.",
              "code": "other_booking"
            }
          ],
          "handler": {"set": {"target": "status", "value": "cancelled"}}
        }
      }
    }
  }
}
`;export{e as default};