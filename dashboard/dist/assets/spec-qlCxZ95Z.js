var e=`{
  "agent_types": ["staff", "guest"],
  "geo_types": {"delivery_zone": {"type": "polygon", "properties": ["name", "fee"]}},
  "aggregate_types": {
    "chain": {
      "events": {
        "was_founded": {
          "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1}},
            "required": ["name"],
            "additionalProperties": false
          },
          "handler": [{"set": {"target": "", "value": "$.data"}}]
        },
        "was_renamed": {
          "schema": {
            "type": "object",
            "properties": {"name": {"type": "string", "minLength": 1}},
            "required": ["name"],
            "additionalProperties": false
          },
          "handler": [{"merge": {"target": "", "value": "$.data"}}]
        }
      }
    },
    "store": {
      "events": {
        "was_opened": {
          "schema": {
            "type": "object",
            "properties": {
              "name": {"type": "string", "minLength": 1},
              "kind": {"enum": ["bakery", "books", "tools"]},
              "chain_id": {"type": "string", "format": "uuid"},
              "place": {"type": "object"}
            },
            "required": ["name", "kind", "place"],
            "additionalProperties": false
          },
          "handler": [
            {"set": {"target": "", "value": "$.data"}},
            {"set": {"target": "reviews", "value": 0}},
            {"set": {"target": "stars", "value": 0}}
          ],
          "geo": {"type": "point", "path": "$.data.place"}
        },
        "had_moved": {
          "schema": {
            "type": "object",
            "properties": {"place": {"type": "object"}},
            "required": ["place"],
            "additionalProperties": false
          },
          "handler": [{"merge": {"target": "", "value": "$.data"}}],
          "geo": {"type": "point", "path": "$.data.place"}
        },
        "had_review": {
          "schema": {
            "type": "object",
            "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}},
            "required": ["stars"],
            "additionalProperties": false
          },
          "allow_skip_occ": true,
          "handler": [
            {"increment": {"target": "reviews", "by": 1}},
            {"increment": {"target": "stars", "by": "$.data.stars"}}
          ]
        },
        "was_closed": {
          "schema": {
            "type": "object",
            "properties": {"place": {"type": "null"}},
            "required": ["place"],
            "additionalProperties": false
          },
          "handler": [{"set": {"target": "closed", "value": true}}],
          "geo": {"type": "point", "path": "$.data.place"}
        }
      }
    },
    "zone": {
      "events": {
        "was_drawn": {
          "schema": {
            "type": "object",
            "properties": {
              "name": {"type": "string"},
              "fee": {"type": "number", "minimum": 0},
              "store_id": {"type": "string", "format": "uuid"},
              "area": {"type": "object"}
            },
            "required": ["name", "fee", "store_id", "area"],
            "additionalProperties": false
          },
          "handler": [{"set": {"target": "store_id", "value": "$.data.store_id"}}],
          "geo": {"type": "delivery_zone", "path": "$.data.area"}
        }
      }
    }
  },
  "projections": {
    "store_card": {
      "for_each": "store",
      "sources": {"store": "$key", "chain": {"type": "chain", "id": "$.store.chain_id"}},
      "select": {
        "name": "$.store.name",
        "kind": "$.store.kind",
        "chain": "$.chain.name",
        "place": "$.store.place",
        "reviews": "$.store.reviews",
        "stars": "$.store.stars",
        "closed": "$.store.closed?"
      },
      "index": ["kind", ["kind", "reviews"], "chain", {"words": "name"}]
    },
    "delivers_from": {
      "for_each": "zone",
      "sources": {"zone": "$key", "store": {"type": "store", "id": "$.zone.store_id"}},
      "select": {"store": "$.store.name", "place": "$.store.place"}
    }
  }
}
`;export{e as default};