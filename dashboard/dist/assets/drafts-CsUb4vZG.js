var e=(e,t)=>`j17.draft ${e} ${t}`;function t(t,n){try{return localStorage.getItem(e(t,n))}catch{return null}}function n(t,n,r){try{return r===null?localStorage.removeItem(e(t,n)):localStorage.setItem(e(t,n),r),!0}catch{return!1}}var r=`{
  "agent_types": ["user"],
  "aggregate_types": {
    "note": {
      "events": {
        "was_written": {
          "schema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
          "handler": [{"set": {"target": "text", "value": "$.data.text"}}]
        }
      }
    }
  }
}
`;export{n,r,t};