var e=(e,t)=>`j17.draft ${e} ${t}`;function t(t,n){try{let r=JSON.parse(localStorage.getItem(e(t,n))??`null`);return typeof r?.text!=`string`||typeof r.hash!=`string`||typeof r.version!=`number`?null:{text:r.text,hash:r.hash,version:r.version}}catch{return null}}function n(t,n,r){try{return r===null?localStorage.removeItem(e(t,n)):localStorage.setItem(e(t,n),JSON.stringify(r)),!0}catch{return!1}}var r=`{
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