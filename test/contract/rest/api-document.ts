/** The parts of the API document that tests look at, and what every part of it must have. */

export interface JsonSchema {
  $ref?: string;
  title?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, JsonSchema>;
  additionalProperties?: boolean | JsonSchema;
  items?: JsonSchema;
  anyOf?: JsonSchema[];
  required?: string[];
  enum?: string[];
  pattern?: string;
  examples?: unknown[];
}

interface Media {
  schema?: JsonSchema;
  example?: unknown;
  examples?: Record<string, { $ref?: string }>;
}

export interface ApiOperation {
  operationId?: string;
  summary?: string;
  tags?: string[];
  parameters?: { name: string; in: string; description?: string; schema: JsonSchema; required?: boolean }[];
  requestBody?: { required?: boolean; content: Record<string, Media> };
  responses: Record<string, { description?: string; content?: Record<string, Media> }>;
  security?: object[];
}

export interface ApiDocument {
  paths: Record<string, Record<string, ApiOperation>>;
  components: {
    schemas: Record<string, JsonSchema>;
    examples: Record<string, { summary?: string; value?: unknown }>;
  };
}

export interface Operation {
  method: string;
  path: string;
  spec: ApiOperation;
}

export function operationsOf(document: ApiDocument): Operation[] {
  return Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, spec]) => ({ method: method.toUpperCase(), path, spec })),
  );
}

/** The keys of the errors that an operation may answer with this status. */
export function declaredKeys({ responses }: ApiOperation, status: number): string[] {
  return Object.keys(responses[String(status)]?.content?.['application/json']?.examples ?? {});
}

/** What an operation lacks, in words. */
export function lackOfOperation({ method, path, spec }: Operation): string[] {
  const place = `${method} ${path}`;
  const needsLogin = (spec.security ?? []).length > 0;
  const lacks: [unknown, string][] = [
    [spec.operationId, 'an operationId'],
    [spec.summary, 'a summary'],
    [spec.tags?.length, 'a tag'],
    ...(spec.parameters ?? []).map(({ name, description }): [unknown, string] => [
      description,
      `a description of its parameter ${name}`,
    ]),
    ...mediaOf(spec).flatMap(([what, media]): [unknown, string][] => [
      [media.example ?? media.examples ?? media.schema?.examples, `an example of its ${what}`],
      [media.schema?.properties === undefined || media.schema.title, `a title of its ${what}`],
    ]),
    ...['400', '401', '500'].flatMap((status): [unknown, string][] =>
      status === '401' && !needsLogin
        ? []
        : [[declaredKeys(spec, Number(status)).length, `${status} errors`]],
    ),
    ...(path.includes('{') ? ([[declaredKeys(spec, 404).length, '404 errors']] as [unknown, string][]) : []),
  ];
  return [
    ...lacks.filter(([present]) => !present).map(([, what]) => `${place} lacks ${what}`),
    ...mediaOf(spec).flatMap(([what, { schema }]) => lackOfSchema(schema ?? {}, `${place}: ${what}`)),
  ];
}

/** Bodies and answers that succeed. */
function mediaOf({ requestBody, responses }: ApiOperation): [string, Media][] {
  const json = Object.entries(requestBody?.content ?? {}).filter(([type]) => type === 'application/json');
  const bodies = json.map(([, media]): [string, Media] => ['body', media]);
  const answers = Object.entries(responses)
    .filter(([status]) => Number(status) < 400)
    .flatMap(([status, { content }]) =>
      Object.entries(content ?? {})
        .filter(([type]) => type !== 'application/octet-stream')
        .map(([, media]): [string, Media] => [`answer ${status}`, media]),
    );
  return [...bodies, ...answers];
}

/** Names of the bodies and answers that are written out where they are used. */
export function titlesOf({ spec }: Operation): string[] {
  return mediaOf(spec).flatMap(([, { schema }]) => (schema?.title === undefined ? [] : [schema.title]));
}

/** Fields without a description, anywhere in a schema. */
export function lackOfSchema(schema: JsonSchema, place: string): string[] {
  const own = Object.entries(schema.properties ?? {}).flatMap(([name, field]) => [
    ...(field.description || field.$ref ? [] : [`${place}.${name} lacks a description`]),
    ...lackOfSchema(field, `${place}.${name}`),
  ]);
  const { items, anyOf = [], additionalProperties: more } = schema;
  const below = [...(items ? [items] : []), ...anyOf, ...(typeof more === 'object' ? [more] : [])];
  return [...own, ...below.flatMap(part => lackOfSchema(part, place))];
}
