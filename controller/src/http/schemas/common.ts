/** Schema pieces that every resource uses. */
import { MAX_STATE_NAME_BYTES } from '@virtkeep/shared/state-name';
import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import { STORY } from '../document/story.ts';
import type { ListAnswer } from '../paging.ts';

export const UUID_PATTERN = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';

/** Of requests: capitals mean the same id (`given-ids.ts`). */
export const GIVEN_UUID_PATTERN = UUID_PATTERN.replaceAll('a-f', 'a-fA-F');

export const Uuid = Type.String({ pattern: UUID_PATTERN });
/** An id in a request: a UUID, in capitals too. An optional one that is empty counts as absent. */
export const GivenUuid = Type.String({ pattern: GIVEN_UUID_PATTERN });
/** RFC 3339, UTC. */
export const Time = Type.String({ format: 'date-time' });
export const Bytes = Type.Integer({ minimum: 0 });
/** Free text of people; not every database keeps a NUL. */
export const Text = Type.String({ maxLength: 4096, pattern: '^[^\\u0000]*$' });
/** A name people give; no control characters. */
export const Name = nameOf(255);
/** Of a new saved state. The node counts bytes: most letters that are not Latin have two. */
export const StateName = nameOf(MAX_STATE_NAME_BYTES);

function nameOf(maxLength: number) {
  return Type.String({ minLength: 1, maxLength, pattern: '^[^\\u0000-\\u001f\\u007f]*$' });
}

/** The same kind of value, and what this one is. */
export function described<T extends TSchema>(schema: T, description: string): T {
  const same: object = Object.defineProperties({}, Object.getOwnPropertyDescriptors(schema));
  return Object.assign(same, { description }) as unknown as T;
}

/** A text without limits, in an answer. */
export const text = (description: string) => Type.String({ description });
/** A whole number in an answer. */
export const integer = (description: string) => Type.Integer({ description });
export const truth = (description: string) => Type.Boolean({ description });
export const flag = (description: string) => Type.Optional(truth(description));
export const texts = (description: string) => Type.Array(Type.String(), { description });

/** Or null: what it is then also stands in the schema's own description. */
export function nullable<T extends TSchema>(schema: T, description = descriptionOf(schema)) {
  return Type.Union([schema, Type.Null()], description === undefined ? {} : { description });
}

function descriptionOf(schema: TSchema): string | undefined {
  return (schema as { description?: string }).description;
}

export function oneOf<const T extends readonly string[]>(values: T, options: { description?: string } = {}) {
  return Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });
}

/** A filter of a list that is true or false. */
export const boolText = (description: string) =>
  Type.Optional(oneOf(['true', 'false', '1', '0'] as const, { description }));

/** Reads a `boolText`; undefined when the parameter was not given. */
export function isTrue(text: string | undefined): boolean | undefined {
  return text === undefined ? undefined : text === 'true' || text === '1';
}

/** A reference to a record that is registered under its `$id`. */
export function ref<T extends TSchema & { $id?: string }>(schema: T) {
  return Type.Unsafe<Static<T>>({ $ref: `${schema.$id}#` });
}

interface RecordTexts<P extends TProperties> {
  description: string;
  example: Static<TObject<P>>;
}

/** A record of the API: named in the document, and closed, so that tests see a field that is not documented. */
export function record<P extends TProperties>(
  $id: string,
  { description, example }: RecordTexts<NoInfer<P>>,
  properties: P,
) {
  return Type.Object(properties, { $id, description, examples: [example], additionalProperties: false });
}

/** A request body: closed, with a call as it may be made. `idempotency_key` is added to every body by the server. */
export function body<P extends TProperties>(properties: P, example: Static<TObject<NoInfer<P>>>) {
  return Type.Object(properties, { examples: [example], additionalProperties: false });
}

/** An object within a record. */
export function part<P extends TProperties>(properties: P, description?: string) {
  const closed = { additionalProperties: false } as const;
  return Type.Object(properties, description === undefined ? closed : { ...closed, description });
}

/** A thing by its id and its name. */
export function named(description: string) {
  return part({ id: described(Uuid, 'its id'), verbose_name: text('its name') }, description);
}

/** The answer of what has nothing to tell. */
export const Nothing = part({}, 'done');

/** The example of a record, for those of others. */
export function exampleOf<T extends TSchema>(schema: T): Static<T> {
  return (schema as unknown as { examples: [Static<T>] }).examples[0];
}

/** Path parameters with one id. */
export const IdParams = part({ id: described(GivenUuid, 'id of the thing that the path names') });

/** A user, for clients. */
export const UserNumber = Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1, description: 'number of a user' });
/** A user by number and name; the number is 0 for an unknown user. */
export const NamedUser = part(
  {
    id: Type.Integer({ minimum: 0, description: 'number of the user; 0: unknown' }),
    username: text('the name at that time'),
  },
  'whose it is',
);

/** Path parameters with the number of a user. */
export const UserParams = part({ id: UserNumber });

/** Path parameters with a login of a user. */
export const UserSessionParams = part({ id: UserNumber, session: described(GivenUuid, 'id of the login') });

/** A limit of speed in a body; leaving it out is no limit. */
export const Bandwidth = Type.Integer({ minimum: 1, maximum: 1e12, description: 'bytes per second' });

/** Query of an action that is a task. */
export const AsyncQuery = Type.Object(
  { async: Type.Optional(Type.Integer({ minimum: 0, maximum: 1, description: '1: answer 202 at once' })) },
  { additionalProperties: false },
);

const NETWORK_LAYERS =
  'of a VM whose disks are all devices the layers may lie on a network file system; else layers_on_network when they would';

/** Of a request that may make layers. */
export const AllowNetworkLayers = Type.Boolean({ default: false, description: NETWORK_LAYERS });

/** Query of an attaching, whose body has no parameters besides the disk. */
export const AttachQuery = Type.Object(
  {
    ...AsyncQuery.properties,
    allow_network_layers: Type.Optional(
      Type.Integer({ minimum: 0, maximum: 1, description: `1: ${NETWORK_LAYERS}` }),
    ),
  },
  { additionalProperties: false },
);

/** Query of a list: the common parameters and the resource's own filters. */
export function listQuery<P extends TProperties>(filters: P) {
  return Type.Object(
    {
      limit: Type.Optional(
        Type.Integer({ minimum: 1, maximum: 1000, default: 100, description: 'most records in a page' }),
      ),
      offset: Type.Optional(
        Type.Integer({ minimum: 0, maximum: 1_000_000_000, default: 0, description: 'records to leave out' }),
      ),
      ordering: Type.Optional(Type.String({ maxLength: 64, description: 'field, or -field for descending' })),
      name: Type.Optional(Type.String({ maxLength: 255, description: 'part of verbose_name' })),
      fields: Type.Optional(Type.String({ maxLength: 2048, description: 'comma-separated field names' })),
      all_content: Type.Optional(
        Type.Integer({ minimum: 0, maximum: 1, description: '1: full records in the list' }),
      ),
      ...filters,
    },
    { additionalProperties: false },
  );
}

/** What the viewer may do with a record now. */
export const Permissions = Type.Array(Type.String(), {
  description: 'the actions that you may take with it now',
});

/** A filter of a list by what it has to do with. */
export function filterById(description: string) {
  return Type.Optional(described(GivenUuid, description));
}

/** The tags that a thing bears. */
export const BorneTags = Type.Array(
  part({
    id: described(Uuid, 'id of the tag'),
    verbose_name: text('its name'),
    colour: text('empty: none was given'),
  }),
  { description: 'by name' },
);

/** Filters of lists whose things are all in the one cluster and the one resource pool. */
export const wholeFilters = {
  cluster: filterById('of this cluster; there is one'),
  resource_pool: filterById('of this resource pool; there is one'),
};

/** Filter of lists of what can be tagged. */
export const tagFilter = { tag: filterById('that bear this tag') };

/** What a list tells beside its page. */
interface Beside<P extends TProperties> {
  properties: P;
  example: Static<TObject<P>>;
}

/** A page of records. With `fields` only the named fields are there, so nothing is required in an item. */
export function listOf<P extends TProperties = Record<never, never>>(
  schema: TObject,
  { properties, example }: Beside<P> = { properties: {}, example: {} } as unknown as Beside<P>,
) {
  return Type.Unsafe<ListAnswer & Static<TObject<P>>>(
    Type.Object(
      {
        count: Type.Integer({ minimum: 0, description: 'of all pages' }),
        next: nullable(text('URL of the next page; null: there is none')),
        previous: nullable(text('URL of the page before; null: there is none')),
        results: Type.Array(Type.Partial(schema, { additionalProperties: false }), {
          description: 'the records; with `fields` only the fields that were asked for',
        }),
        ...properties,
      },
      {
        additionalProperties: false,
        examples: [{ count: 1, next: null, previous: null, results: [exampleOf(schema)], ...example }],
      },
    ),
  );
}

export const ErrorBody = record(
  'Error',
  {
    description: 'Why a request was refused or failed',
    example: {
      errors: [{ code: '40401', detail: `There is no domain ${STORY.domain}.`, msg_key: 'domain_not_found' }],
      detail: `There is no domain ${STORY.domain}.`,
      request_id: STORY.request,
    },
  },
  {
    errors: Type.Array(
      part({
        code: Type.String({
          pattern: '^[0-9]{5}$',
          description: 'its first three digits are the HTTP status',
        }),
        detail: text('what was wrong, and what to do'),
        msg_key: text('its stable name'),
        field: Type.Optional(text('the field of the request that it is about')),
      }),
      { minItems: 1, description: 'everything that was wrong' },
    ),
    detail: text('the texts of all of them'),
    request_id: text('to be found in the logs by'),
  },
);
