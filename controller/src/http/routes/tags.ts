/** Tags, and those of a VM, node, data pool, disk or backup file. */
import type { Permission } from '@virtkeep/shared/permissions';
import Type from 'typebox';
import type { Services } from '../../services/services.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import {
  body,
  described,
  GivenUuid,
  IdParams,
  listOf,
  listQuery,
  Name,
  Nothing,
  part,
  ref,
  Text,
} from '../schemas/common.ts';
import { TagSchema } from '../schemas/tag.ts';

const tags = ['tags'];
const ORDERINGS = ['verbose_name', 'created', 'modified', 'entities_count'] as const;
const MAX_ENTITIES = 1000;

const Colour = Type.Optional(Type.String({ maxLength: 32, description: 'as people see it, #1e90ff' }));
const TagName = described(Name, 'which no other tag has');
const Class = Type.Optional(
  Type.String({ maxLength: 64, description: 'not needed: what the id names is known' }),
);
const entity = { entity_uuid: described(GivenUuid, 'id of the thing'), entity_class: Class };
const exampleEntity = { entity_uuid: STORY.domain, entity_class: 'domain' };
const Entity = body(entity, exampleEntity);
const Entities = body(
  { entities: Type.Array(part(entity), { maxItems: MAX_ENTITIES, description: 'the things' }) },
  { entities: [exampleEntity] },
);

export const tagRoutes: RouteModule = (app, services) => {
  readRoutes(app, services);
  changeRoutes(app, services);
  bearerRoutes(app, services);
  tagsOf(app, services, {
    resource: 'domains',
    access: 'domain.read',
    find: id => services.domains.get(id, null),
  });
  tagsOf(app, services, { resource: 'nodes', access: 'node.read', find: id => services.nodes.get(id) });
  tagsOf(app, services, { resource: 'data-pools', access: 'pool.read', find: id => services.pools.get(id) });
  tagsOf(app, services, { resource: 'vdisks', access: 'vdisk.read', find: id => services.vdisks.get(id) });
  tagsOf(app, services, {
    resource: 'library',
    access: 'library.read',
    find: id => services.library.get(id),
  });
};

function readRoutes(app: App, services: Services): void {
  app.get(
    '/api/tags/',
    {
      config: { access: 'tag.read' },
      schema: {
        tags,
        summary: 'List tags',
        querystring: listQuery({}),
        response: { 200: listOf(TagSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, TagSchema, ORDERINGS);
      const viewer = principalOf(request);
      return listFromArray(request, page, services.tags.list(), {
        render: tag => permitted('tag', tag, viewer),
      });
    },
  );

  app.get(
    '/api/tags/:id/',
    {
      config: { access: 'tag.read' },
      schema: { tags, summary: 'One tag', params: IdParams, response: { 200: ref(TagSchema) } },
    },
    async request => permitted('tag', services.tags.get(request.params.id), principalOf(request)),
  );
}

function changeRoutes(app: App, services: Services): void {
  app.post(
    '/api/tags/',
    {
      config: { access: 'tag.manage', errors: ['name_taken', 'too_many_tags'] },
      schema: {
        tags,
        summary: 'Make a tag',
        body: body(
          { verbose_name: TagName, description: described(Type.Optional(Text), 'free text'), colour: Colour },
          { verbose_name: 'nightly', colour: '#1e90ff' },
        ),
        response: { 200: ref(TagSchema) },
      },
    },
    async request => permitted('tag', await services.tags.create(request.body), principalOf(request)),
  );

  app.put(
    '/api/tags/:id/',
    {
      config: { access: 'tag.manage', errors: ['name_taken'] },
      schema: {
        tags,
        summary: 'Change the name, the description or the colour of a tag',
        params: IdParams,
        body: body(
          {
            verbose_name: Type.Optional(TagName),
            description: described(Type.Optional(Text), 'free text'),
            colour: Colour,
          },
          { description: 'backed up every night' },
        ),
        response: { 200: ref(TagSchema) },
      },
    },
    async request =>
      permitted('tag', await services.tags.update(request.params.id, request.body), principalOf(request)),
  );

  app.post(
    '/api/tags/:id/remove/',
    {
      config: { access: 'tag.manage' },
      schema: {
        tags,
        summary: 'Remove a tag, from all that bears it',
        params: IdParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      await services.tags.remove(request.params.id);
      return {};
    },
  );
}

function bearerRoutes(app: App, services: Services): void {
  const one = (given: unknown) => [given as { entity_uuid: string }];
  const several = (given: unknown) => (given as { entities: { entity_uuid: string }[] }).entities;
  const calls = [
    ['add-entity', 'Tag a thing', Entity, one, 'add'],
    ['add-entities', 'Tag several things, all or none', Entities, several, 'add'],
    ['remove-entity', 'Take a tag from a thing', Entity, one, 'takeAway'],
    ['remove-entities', 'Take a tag from several things', Entities, several, 'takeAway'],
  ] as const;
  for (const [path, summary, schema, read, action] of calls)
    app.post(
      `/api/tags/:id/${path}/`,
      {
        config: { access: 'tag.manage', errors: ['too_many_tags'] },
        schema: { tags, summary, params: IdParams, body: schema, response: { 200: ref(TagSchema) } },
      },
      async request => {
        const { id } = request.params as { id: string };
        const ids = read(request.body).map(({ entity_uuid }) => entity_uuid.toLowerCase());
        return permitted('tag', await services.tags[action](id, ids), principalOf(request));
      },
    );
}

interface Tagged {
  resource: string;
  access: Permission;
  /** Throws when there is no such thing. */
  find: (id: string) => unknown;
}

function tagsOf(app: App, services: Services, { resource, access, find }: Tagged): void {
  app.get(
    `/api/${resource}/:id/tags/`,
    {
      config: { access },
      schema: {
        tags,
        summary: 'The tags that it bears',
        params: IdParams,
        querystring: listQuery({}),
        response: { 200: listOf(TagSchema) },
      },
    },
    async request => {
      const { id } = request.params as { id: string };
      await find(id);
      const page = parsePage(request.query, TagSchema, ORDERINGS);
      const viewer = principalOf(request);
      return listFromArray(request, page, services.tags.of(id), {
        render: tag => permitted('tag', tag, viewer),
      });
    },
  );
}
