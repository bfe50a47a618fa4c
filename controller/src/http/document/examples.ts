/** Examples of answers, made of those that stand with the schemas. Pure. */

/** What of a schema matters here. */
export interface ExampleSchema {
  $ref?: string;
  type?: string | string[];
  examples?: readonly unknown[];
  properties?: Readonly<Record<string, ExampleSchema>>;
}

const COMPONENT = '#/components/schemas/';

/**
 * The example of an answer: the schema's own, or that of the record it refers to. An object without fields is its own example.
 * @returns undefined when nobody gave one.
 */
export function exampleOf(schema: ExampleSchema, records: Readonly<Record<string, ExampleSchema>>): unknown {
  if (schema.$ref !== undefined) return records[schema.$ref.slice(COMPONENT.length)]?.examples?.[0];
  if (schema.examples !== undefined) return schema.examples[0];
  const hasNoFields = schema.properties !== undefined && Object.keys(schema.properties).length === 0;
  return hasNoFields ? {} : undefined;
}
