var e=`{
  "agent_types": ["user"],
  "aggregate_types": {
    "counter": {
      "events": {
        "was_raised": {
          "schema": {
            "type": "object",
            "properties": {"by": {"type": "number"}},
            "required": ["by"]
          },
          "handler": {"increment": {"target": "total", "by": "$.data.by"}}
        }
      }
    }
  }
}
`;export{e as default};