/**
 * Options that a node gets as the REST API took them: same name, in the other spelling, and same type. So a new one is written in
 * the schema of the call, in the proto, and where the node uses it; here the compiler holds that the first two agree.
 */

type SnakeCase<S extends string> = S extends `${infer First}${infer Rest}`
  ? First extends Lowercase<First>
    ? `${First}${SnakeCase<Rest>}`
    : `_${Lowercase<First>}${SnakeCase<Rest>}`
  : '';

type CamelCase<S extends string> = S extends `${infer Head}_${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : S;

/** The options of a message of the protos, without the fields that the controller decides. */
export type NodeOptions<Message, Decided extends keyof Message> = {
  [Field in Exclude<keyof Message, Decided> & string as SnakeCase<Field>]?: Message[Field] | undefined;
};

export type NodeFields<Options> = {
  [Name in keyof Options & string as CamelCase<Name>]?: Exclude<Options[Name], undefined>;
};

/** The options in the spelling of the protos, without those that were not given. */
export function nodeFields<Options extends object>(options: Options): NodeFields<Options> {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(given.map(([name, value]) => [camelCase(name), value])) as NodeFields<Options>;
}

function camelCase(name: string): string {
  return name.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}
