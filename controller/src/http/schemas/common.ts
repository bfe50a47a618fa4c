/** Schema pieces that every resource uses. */
import Type, { type Static, type TObject, type TProperties, type TSchema } from 'typebox';
import type { ListAnswer } from '../paging.ts';

export const UUID_PATTERN = '^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$';

/** Of requests: capitals mean the same id (`given-ids.ts`). */
export const GIVEN_UUID_PATTERN = UUID_PATTERN.replaceAll('a-f', 'a-fA-F');

export const Uuid = Type.String({ pattern: UUID_PATTERN, description: 'UUID, lower case' });
/** An id in a request. An optional one that is empty counts as absent. */
export const GivenUuid = Type.String({
  pattern: GIVEN_UUID_PATTERN,
  description: 'UUID, in capitals too; empty counts as absent where it is optional',
});
export const Time = Type.String({ format: 'date-time', description: 'RFC 3339, UTC' });
export const Bytes = Type.Integer({ minimum: 0, description: 'bytes' });
/** Free text of people. */
export const Text = Type.String({ maxLength: 4096 });
/** A name people give; no control characters. */
export const Name = Type.String({ minLength: 1, maxLength: 255, pattern: '^[^\\u0000-\\u001f\\u007f]*$' });

export function nullable<T extends TSchema>(schema: T) {
  return Type.Union([schema, Type.Null()]);
}

export function oneOf<const T extends readonly string[]>(values: T, options: { description?: string } = {}) {
  return Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });
}

/** A boolean in a query string. */
export const BoolText = oneOf(['true', 'false', '1', '0'] as const);

/** Reads a `BoolText`; undefined when the parameter was not given. */
export function isTrue(text: string | undefined): boolean | undefined {
  return text === undefined ? undefined : text === 'true' || text === '1';
}

/** A reference to a record that is registered under its `$id`. */
export function ref<T extends TSchema & { $id?: string }>(schema: T) {
  return Type.Unsafe<Static<T>>({ $ref: `${schema.$id}#` });
}

/** A record of the API: named in the document, and closed, so that tests see a field that is not documented. */
export function record<P extends TProperties>($id: string, properties: P) {
  return Type.Object(properties, { $id, additionalProperties: false });
}

/** A request body: closed. `idempotency_key` is added to every body by the server. */
export function body<P extends TProperties>(properties: P) {
  return Type.Object(properties, { additionalProperties: false });
}

/** Path parameters with one id. */
export const IdParams = Type.Object({ id: GivenUuid }, { additionalProperties: false });

/** A user, for clients. */
export const UserNumber = Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1, description: 'number of a user' });
/** As `UserNumber`, and 0 for one who is not known. */
export const ToldUser = Type.Object(
  {
    id: Type.Integer({ minimum: 0, description: 'number of the user; 0: unknown' }),
    username: Type.String(),
  },
  { additionalProperties: false },
);

/** Path parameters with the number of a user. */
export const UserParams = Type.Object({ id: UserNumber }, { additionalProperties: false });

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
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 1000, default: 100 })),
      offset: Type.Optional(Type.Integer({ minimum: 0, maximum: 1_000_000_000, default: 0 })),
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

/** The tags that a thing bears. */
export const BorneTags = Type.Array(
  Type.Object(
    { id: Uuid, verbose_name: Type.String(), colour: Type.String({ description: 'empty: none was given' }) },
    { additionalProperties: false },
  ),
  { description: 'by name' },
);

/** Filters of lists whose things are all in the one cluster and the one resource pool. */
export const wholeFilters = {
  cluster: Type.Optional(GivenUuid),
  resource_pool: Type.Optional(GivenUuid),
};

/** Filter of lists of what can be tagged. */
export const tagFilter = { tag: Type.Optional(GivenUuid) };

/** A page of records. With `fields` only the named fields are there, so nothing is required in an item. */
export function listOf(schema: TObject) {
  return Type.Unsafe<ListAnswer>(
    Type.Object(
      {
        count: Type.Integer({ minimum: 0 }),
        next: nullable(Type.String()),
        previous: nullable(Type.String()),
        results: Type.Array(Type.Partial(schema, { additionalProperties: false })),
      },
      { additionalProperties: false },
    ),
  );
}

export const ErrorBody = record('Error', {
  errors: Type.Array(
    Type.Object(
      {
        code: Type.String({ pattern: '^[0-9]{5}$' }),
        detail: Type.String(),
        msg_key: Type.String(),
        field: Type.Optional(Type.String()),
      },
      { additionalProperties: false },
    ),
    { minItems: 1 },
  ),
  detail: Type.String(),
  request_id: Type.String(),
});
