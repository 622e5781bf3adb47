var e=`{
  "agent_types": ["member"],
  "aggregate_types": {
    "board": {
      "events": {
        "was_opened": {
          "schema": {
            "type": "object",
            "properties": {"title": {"type": "string", "minLength": 1, "maxLength": 200}},
            "required": ["title"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {"not": {"exists": "@.title"}},
              "then": [
                {"set": {"target": "title", "value": "$.data.title"}},
                {"set": {"target": "members", "value": ["$.metadata.actor.id"]}},
                {"set": {"target": "columns", "value": []}},
                {"set": {"target": "cards", "value": []}},
                {"set": {"target": "labels", "value": {}}}
              ]
            }
          ]
        },
        "had_member_added": {
          "schema": {
            "type": "object",
            "properties": {"member_id": {"type": "string", "format": "uuid"}},
            "required": ["member_id"],
            "additionalProperties": false
          },
          "handler": {"append_unique": {"target": "members", "value": "$.data.member_id"}}
        },
        "had_member_removed": {
          "schema": {
            "type": "object",
            "properties": {"member_id": {"type": "string", "format": "uuid"}},
            "required": ["member_id"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {"minItems": {"array": "members", "min": 2}},
              "then": {"remove": {"target": "members", "value": "$.data.member_id"}}
            }
          ]
        },
        "had_column_added": {
          "schema": {
            "type": "object",
            "properties": {
              "column_id": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$"},
              "title": {"type": "string", "minLength": 1, "maxLength": 100},
              "rank": {"type": "number"},
              "limit": {
                "type": "integer",
                "minimum": 1,
                "description": "How many cards at the same time"
              }
            },
            "required": ["column_id", "title", "rank"],
            "additionalProperties": false
          },
          "handler": {
            "append_unique": {"target": "columns", "value": "$.data", "uniqueField": "column_id"}
          }
        },
        "had_column_changed": {
          "schema": {
            "type": "object",
            "properties": {
              "column_id": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$"},
              "title": {"type": "string", "minLength": 1, "maxLength": 100},
              "rank": {"type": "number"},
              "limit": {"type": "integer", "minimum": 1}
            },
            "required": ["column_id"],
            "minProperties": 2,
            "additionalProperties": false
          },
          "handler": {
            "update_where": {
              "target": "columns",
              "match": {"column_id": "$.data.column_id"},
              "merge": "$.data"
            }
          }
        },
        "had_column_dissolved": {
          "schema": {
            "type": "object",
            "properties": {
              "column_id": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$"},
              "into": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$"}
            },
            "required": ["column_id", "into"],
            "additionalProperties": false
          },
          "handler": [
            {
              "let": {
                "name": "$into",
                "find": {"in": "columns", "where": {"column_id": "$.data.into"}}
              }
            },
            {
              "if": {
                "and": [{"exists": "$into"}, {"not_equals": ["$.data.column_id", "$.data.into"]}]
              },
              "then": [
                {"remove": {"target": "columns", "where": {"column_id": "$.data.column_id"}}},
                {
                  "update_where": {
                    "target": "cards",
                    "match": {"column_id": "$.data.column_id"},
                    "merge": {"column_id": "$.data.into"}
                  }
                }
              ]
            }
          ]
        },
        "had_card_placed": {
          "schema": {
            "type": "object",
            "properties": {
              "card_id": {"type": "string", "format": "uuid"},
              "column_id": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$"},
              "rank": {"type": "number"}
            },
            "required": ["card_id", "column_id", "rank"],
            "additionalProperties": false
          },
          "handler": [
            {
              "let": {
                "name": "$column",
                "find": {"in": "columns", "where": {"column_id": "$.data.column_id"}}
              }
            },
            {"set": {"target": "others", "value": "@.cards"}},
            {
              "filter": {
                "target": "others",
                "as": "$card",
                "keep": {
                  "and": [
                    {"equals": ["$card.column_id", "$.data.column_id"]},
                    {"not_equals": ["$card.card_id", "$.data.card_id"]}
                  ]
                }
              }
            },
            {
              "if": {
                "and": [
                  {"exists": "$column"},
                  {
                    "or": [
                      {"not": {"exists": "$column.limit"}},
                      {"not": {"minItems": {"array": "others", "min": "$column.limit"}}}
                    ]
                  }
                ]
              },
              "then": {
                "upsert": {
                  "target": "cards",
                  "match": {"card_id": "$.data.card_id"},
                  "value": "$.data"
                }
              }
            },
            {"remove_at": {"target": "", "key": "others"}}
          ]
        },
        "had_column_spread": {
          "schema": {
            "type": "object",
            "properties": {
              "column_id": {"type": "string", "pattern": "^[a-z0-9_]{1,32}$"},
              "ranks": {
                "type": "array",
                "items": {
                  "type": "object",
                  "properties": {
                    "card_id": {"type": "string", "format": "uuid"},
                    "rank": {"type": "number"}
                  },
                  "required": ["card_id", "rank"],
                  "additionalProperties": false
                },
                "minItems": 1,
                "maxItems": 500
              }
            },
            "required": ["column_id", "ranks"],
            "additionalProperties": false
          },
          "handler": {
            "map": {
              "target": "cards",
              "as": "$card",
              "apply": [
                {
                  "let": {
                    "name": "$new",
                    "find": {"in": "$.data.ranks", "where": {"card_id": "$card.card_id"}}
                  }
                },
                {
                  "if": {
                    "and": [{"exists": "$new"}, {"equals": ["$card.column_id", "$.data.column_id"]}]
                  },
                  "then": {"set": {"target": "rank", "value": "$new.rank"}}
                }
              ]
            }
          }
        },
        "had_card_removed": {
          "schema": {
            "type": "object",
            "properties": {"card_id": {"type": "string", "format": "uuid"}},
            "required": ["card_id"],
            "additionalProperties": false
          },
          "handler": {"remove": {"target": "cards", "where": {"card_id": "$.data.card_id"}}}
        },
        "had_label_defined": {
          "schema": {
            "type": "object",
            "properties": {
              "label": {"type": "string", "pattern": "^[a-z0-9-]{1,32}$"},
              "color": {"type": "string", "pattern": "^#[0-9a-f]{6}$"}
            },
            "required": ["label", "color"],
            "additionalProperties": false
          },
          "handler": {
            "set_at": {
              "target": "labels",
              "key": "$.data.label",
              "value": {"color": "$.data.color"}
            }
          }
        },
        "had_label_dropped": {
          "schema": {
            "type": "object",
            "properties": {"label": {"type": "string", "pattern": "^[a-z0-9-]{1,32}$"}},
            "required": ["label"],
            "additionalProperties": false
          },
          "handler": {"remove_at": {"target": "labels", "key": "$.data.label"}}
        }
      }
    },
    "card": {
      "events": {
        "was_written": {
          "schema": {
            "type": "object",
            "properties": {
              "board_id": {"type": "string", "format": "uuid"},
              "title": {"type": "string", "minLength": 1, "maxLength": 200},
              "text": {"type": "string", "maxLength": 10000}
            },
            "required": ["board_id", "title"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {"not": {"exists": "@.status"}},
              "then": [
                {"set": {"target": "", "value": "$.data"}},
                {"set": {"target": "status", "value": "open"}},
                {"set": {"target": "checklist", "value": []}},
                {"set": {"target": "labels", "value": []}},
                {"set": {"target": "blockers", "value": []}},
                {"set": {"target": "reviewers", "value": []}},
                {"set": {"target": "approvals", "value": []}}
              ]
            }
          ]
        },
        "was_reworded": {
          "schema": {
            "type": "object",
            "properties": {
              "title": {"type": "string", "minLength": 1, "maxLength": 200},
              "text": {"type": "string", "maxLength": 10000}
            },
            "minProperties": 1,
            "additionalProperties": false
          },
          "handler": {"merge": {"target": "", "value": "$.data"}}
        },
        "had_label_put_on": {
          "schema": {
            "type": "object",
            "properties": {"label": {"type": "string", "pattern": "^[a-z0-9-]{1,32}$"}},
            "required": ["label"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {"not": {"minItems": {"array": "labels", "min": 5}}},
              "then": {"append_unique": {"target": "labels", "value": "$.data.label"}}
            }
          ]
        },
        "had_label_taken_off": {
          "schema": {
            "type": "object",
            "properties": {"label": {"type": "string", "pattern": "^[a-z0-9-]{1,32}$"}},
            "required": ["label"],
            "additionalProperties": false
          },
          "handler": {"remove": {"target": "labels", "value": "$.data.label"}}
        },
        "had_check_added": {
          "schema": {
            "type": "object",
            "properties": {
              "check_id": {"type": "string", "pattern": "^[a-z0-9]{1,16}$"},
              "text": {"type": "string", "minLength": 1, "maxLength": 500},
              "rank": {"type": "number"}
            },
            "required": ["check_id", "text", "rank"],
            "additionalProperties": false
          },
          "handler": {
            "append_unique": {
              "target": "checklist",
              "value": {"$merge": ["$.data", {"done": false}]},
              "uniqueField": "check_id"
            }
          }
        },
        "had_check_ticked": {
          "schema": {
            "type": "object",
            "properties": {
              "check_id": {"type": "string", "pattern": "^[a-z0-9]{1,16}$"},
              "done": {"type": "boolean"}
            },
            "required": ["check_id", "done"],
            "additionalProperties": false
          },
          "handler": {
            "update_where": {
              "target": "checklist",
              "match": {"check_id": "$.data.check_id"},
              "merge": {"done": "$.data.done", "by": "$.metadata.actor.id"}
            }
          }
        },
        "had_check_removed": {
          "schema": {
            "type": "object",
            "properties": {"check_id": {"type": "string", "pattern": "^[a-z0-9]{1,16}$"}},
            "required": ["check_id"],
            "additionalProperties": false
          },
          "handler": {"remove": {"target": "checklist", "where": {"check_id": "$.data.check_id"}}}
        },
        "was_blocked": {
          "schema": {
            "type": "object",
            "properties": {"by_card_id": {"type": "string", "format": "uuid"}},
            "required": ["by_card_id"],
            "additionalProperties": false
          },
          "handler": {"append_unique": {"target": "blockers", "value": "$.data.by_card_id"}}
        },
        "was_unblocked": {
          "schema": {
            "type": "object",
            "properties": {"by_card_id": {"type": "string", "format": "uuid"}},
            "required": ["by_card_id"],
            "additionalProperties": false
          },
          "handler": {"remove": {"target": "blockers", "value": "$.data.by_card_id"}}
        },
        "was_started": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [
            {
              "if": {
                "and": [
                  {"equals": ["@.status", "open"]},
                  {"maxItems": {"array": "blockers", "max": 0}}
                ]
              },
              "then": [
                {"set": {"target": "status", "value": "doing"}},
                {"set": {"target": "assignee", "value": "$.metadata.actor.id"}},
                {"set": {"target": "started_at", "value": "$.metadata.timestamp"}}
              ]
            }
          ]
        },
        "had_review_requested": {
          "schema": {
            "type": "object",
            "properties": {
              "reviewers": {
                "type": "array",
                "items": {"type": "string", "format": "uuid"},
                "minItems": 1,
                "maxItems": 10,
                "uniqueItems": true
              }
            },
            "required": ["reviewers"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {
                "and": [
                  {"equals": ["@.status", "doing"]},
                  {
                    "every": {
                      "in": "checklist",
                      "as": "$check",
                      "match": {"equals": ["$check.done", true]}
                    }
                  },
                  {"not": {"includes": {"array": "$.data.reviewers", "value": "@.assignee"}}}
                ]
              },
              "then": [
                {"set": {"target": "status", "value": "review"}},
                {"set": {"target": "reviewers", "value": "$.data.reviewers"}},
                {"set": {"target": "approvals", "value": []}}
              ]
            }
          ]
        },
        "had_approval": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [
            {
              "if": {
                "and": [
                  {"equals": ["@.status", "review"]},
                  {"in": ["$.metadata.actor.id", "reviewers"]}
                ]
              },
              "then": {"append_unique": {"target": "approvals", "value": "$.metadata.actor.id"}}
            }
          ]
        },
        "was_sent_back": {
          "schema": {
            "type": "object",
            "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 2000}},
            "required": ["reason"],
            "additionalProperties": false
          },
          "handler": [
            {
              "if": {"equals": ["@.status", "review"]},
              "then": [
                {"set": {"target": "status", "value": "doing"}},
                {
                  "append": {
                    "target": "rejections",
                    "value": {"reason": "$.data.reason", "by": "$.metadata.actor.id"}
                  }
                }
              ]
            }
          ]
        },
        "was_finished": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [
            {
              "if": {
                "and": [
                  {"equals": ["@.status", "review"]},
                  {"subset_of": {"items": "reviewers", "array": "approvals"}},
                  {"not": {"some": {"in": "checklist", "match": {"equals": ["$item.done", false]}}}}
                ]
              },
              "then": [
                {"set": {"target": "status", "value": "done"}},
                {"set": {"target": "finished_at", "value": "$.metadata.timestamp"}}
              ]
            }
          ]
        },
        "was_reopened": {
          "schema": {"type": "object", "additionalProperties": false},
          "handler": [
            {
              "if": {"equals": ["@.status", "done"]},
              "then": [
                {"set": {"target": "status", "value": "open"}},
                {"set": {"target": "approvals", "value": []}},
                {
                  "map": {
                    "target": "checklist",
                    "apply": {"set": {"target": "done", "value": false}}
                  }
                },
                {"remove_at": {"target": "", "key": "finished_at"}},
                {"increment": {"target": "reopened", "by": 1}}
              ]
            }
          ]
        },
        "had_comment": {
          "allow_skip_occ": true,
          "schema": {
            "type": "object",
            "properties": {
              "comment_id": {"type": "string", "format": "uuid"},
              "text": {"type": "string", "minLength": 1, "maxLength": 5000}
            },
            "required": ["comment_id", "text"],
            "additionalProperties": false
          },
          "handler": {
            "append_unique": {
              "target": "comments",
              "value": {
                "$merge": ["$.data", {"by": "$.metadata.actor.id", "at": "$.metadata.timestamp"}]
              },
              "uniqueField": "comment_id"
            }
          }
        },
        "had_comment_withdrawn": {
          "schema": {
            "type": "object",
            "properties": {"comment_id": {"type": "string", "format": "uuid"}},
            "required": ["comment_id"],
            "additionalProperties": false
          },
          "handler": {
            "remove": {
              "target": "comments",
              "where": {
                "and": [
                  {"equals": ["$item.comment_id", "$.data.comment_id"]},
                  {"equals": ["$item.by", "$.metadata.actor.id"]}
                ]
              }
            }
          }
        },
        "had_time_logged": {
          "allow_skip_occ": true,
          "schema": {
            "type": "object",
            "properties": {"minutes": {"type": "integer", "minimum": 1, "maximum": 1440}},
            "required": ["minutes"],
            "additionalProperties": false
          },
          "handler": [
            {"increment": {"target": "minutes", "by": "$.data.minutes"}},
            {
              "increment_at": {
                "target": "minutes_by_member",
                "key": "$.metadata.actor.id",
                "by": "$.data.minutes"
              }
            },
            {
              "if": {"and": [{"exists": "@.budget"}, {"gt": ["@.minutes", "@.budget"]}]},
              "then": {"set": {"target": "over_budget", "value": true}}
            }
          ]
        },
        "had_budget_set": {
          "schema": {
            "type": "object",
            "properties": {"minutes": {"type": "integer", "minimum": 1}},
            "required": ["minutes"],
            "additionalProperties": false
          },
          "handler": [
            {"set": {"target": "budget", "value": "$.data.minutes"}},
            {
              "if": {"lt": ["$.data.minutes", "@.minutes"]},
              "then": {"set": {"target": "over_budget", "value": true}},
              "else": {"set": {"target": "over_budget", "value": false}}
            }
          ]
        }
      }
    }
  },
  "modules": {"cache": ["board"]}
}
`;export{e as default};