import AjvCompiler from '@fastify/ajv-compiler';

type BuildValidator = ReturnType<typeof AjvCompiler>;
type Validate = ReturnType<ReturnType<BuildValidator>>;

const build: BuildValidator = AjvCompiler();

/**
 * Compiles the schema of a route when the first request comes for it: all of them at the start take longer than everything else that the
 * controller does until it listens.
 */
export const compiledWhenUsed: BuildValidator = (externalSchemas, options) => {
  let compile: ReturnType<BuildValidator> | undefined;
  return schema => {
    let compiled: Validate | undefined;
    const validate = ((data: unknown) => {
      compile ??= build(externalSchemas, options);
      compiled ??= compile(schema);
      const isValid = compiled(data);
      validate.errors = compiled.errors ?? null;
      return isValid;
    }) as Validate;
    return validate;
  };
};
