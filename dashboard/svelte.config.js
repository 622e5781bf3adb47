// The defaults of Svelte: TypeScript in scripts is erased by the compiler.
export default {};
