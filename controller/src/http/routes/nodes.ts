import { hasKey } from '@virtkeep/shared/errors';
import Type from 'typebox';
import { isWhole } from '../../services/nodes/whole.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import { FailureLimit } from '../failure-limit.ts';
import { POOL_MARKED } from '../node-errors.ts';
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
  ref,
  Text,
  tagFilter,
  truth,
  wholeFilters,
} from '../schemas/common.ts';
import { EnrolmentSchema, NodeCertificateSchema, NodeSchema, NodeUsageSchema } from '../schemas/node.ts';

const tags = ['nodes'];
const ORDERINGS = [
  'verbose_name',
  'status',
  'domains_count',
  'memory_count',
  'cpu_count',
  'last_seen',
] as const;
/** What somebody who guesses is told; all else that fails is no guess. */
const GUESSES = ['enrolment_token_invalid', 'enrolment_for_other_node'] as const;

/** A wrong token costs an attacker six seconds; what is refused is no more often from one address. */
const REFUSED_ENROLMENTS_PER_MINUTE = 10;
const MAX_PEM = 8192;

export const nodeRoutes: RouteModule = (app, services) => {
  const refused = new FailureLimit({ most: REFUSED_ENROLMENTS_PER_MINUTE, windowMs: 60_000 });
  app.get(
    '/api/nodes/',
    {
      config: { access: 'node.read' },
      schema: {
        tags,
        summary: 'List nodes',
        querystring: listQuery({ ...wholeFilters, ...tagFilter }),
        response: { 200: listOf(NodeSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, NodeSchema, ORDERINGS);
      const viewer = principalOf(request);
      const all = isWhole(request.query) ? services.nodes.listed() : [];
      const nodes = all.filter(({ id }) => services.tags.has(id, request.query.tag));
      return listFromArray(request, page, nodes, {
        renderAll: some =>
          services.nodes.records(some.map(({ id }) => id)).map(node => permitted('node', node, viewer)),
      });
    },
  );

  app.get(
    '/api/nodes/:id/',
    {
      config: { access: 'node.read' },
      schema: { tags, summary: 'One node', params: IdParams, response: { 200: ref(NodeSchema) } },
    },
    async request => permitted('node', services.nodes.get(request.params.id), principalOf(request)),
  );

  app.get(
    '/api/nodes/:id/usage/',
    {
      config: { access: 'node.read' },
      schema: {
        tags,
        summary: 'What of a node its VMs were promised',
        params: IdParams,
        response: { 200: ref(NodeUsageSchema) },
      },
    },
    async request => services.nodes.usage(request.params.id),
  );

  app.post(
    '/api/nodes/',
    {
      config: { access: 'node.manage', secretAnswer: true, errors: ['name_taken'] },
      schema: {
        tags,
        summary: 'Make a one-time enrolment token for a new node, or for one that is enrolled',
        body: body(
          {
            verbose_name: described(Type.Optional(Name), 'its name; else its host name'),
            description: described(Type.Optional(Text), 'free text'),
            address: Type.Optional(
              Type.String({
                minLength: 1,
                maxLength: 260,
                description: 'host or host:port; else what the node tells',
              }),
            ),
            replace: Type.Optional(
              Type.String({
                ...GivenUuid,
                description:
                  'the enrolled node whose place may be taken anew; without it the token is for a new node only',
              }),
            ),
          },
          { verbose_name: 'n2', address: 'n2.example.org' },
        ),
        response: { 200: ref(EnrolmentSchema) },
      },
    },
    async request => services.nodes.enrol(request.body, principalOf(request).username),
  );

  app.post(
    '/api/nodes/enroll/',
    {
      onRequest: async request => refused.require(request),
      onError: async (request, _reply, error) => {
        if (hasKey(error, ...GUESSES)) refused.failed(request);
      },
      config: {
        access: 'public',
        errors: ['enrolment_token_invalid', 'enrolment_for_other_node', 'node_known', 'name_taken'],
      },
      schema: {
        tags,
        summary: 'Exchange an enrolment token for a certificate (sent by virtkeep-agent enroll)',
        body: body(
          {
            token: Type.String({ minLength: 1, maxLength: 256, description: 'the enrolment token' }),
            csr_pem: Type.String({ minLength: 1, maxLength: MAX_PEM, description: 'PKCS #10 request' }),
            node_id: described(GivenUuid, 'id that the node has given itself'),
            hostname: Type.String({
              minLength: 1,
              maxLength: 253,
              pattern: '^[^\\u0000-\\u001f\\u007f]+$',
              description: 'its host name',
            }),
            address: Type.String({ minLength: 1, maxLength: 253, description: 'where its agent is reached' }),
            port: Type.Integer({ minimum: 1, maximum: 65_535, description: 'of its agent' }),
          },
          {
            token: 'Zk3…',
            csr_pem: '-----BEGIN CERTIFICATE REQUEST-----\n…\n-----END CERTIFICATE REQUEST-----\n',
            node_id: STORY.node,
            hostname: 'n1',
            address: '192.0.2.21',
            port: 8444,
          },
        ),
        response: { 200: ref(NodeCertificateSchema) },
      },
    },
    async request => {
      refused.require(request);
      return services.nodes.redeem(request.body);
    },
  );

  app.put(
    '/api/nodes/:id/',
    {
      config: { access: 'node.manage', errors: POOL_MARKED },
      schema: {
        tags,
        summary: 'Change a node: description, base data pool, service mode',
        params: IdParams,
        body: body(
          {
            description: described(Type.Optional(Text), 'free text'),
            base_datapool: described(Type.Optional(GivenUuid), 'where backups go that name no data pool'),
            service_mode: Type.Optional(truth('true: it takes no new operations')),
          },
          { service_mode: true },
        ),
        response: { 200: ref(NodeSchema) },
      },
    },
    async request =>
      permitted('node', await services.nodes.update(request.params.id, request.body), principalOf(request)),
  );

  app.post(
    '/api/nodes/:id/remove/',
    {
      config: { access: 'node.manage', errors: ['node_has_tasks', 'outcome_unknown'] },
      schema: {
        tags,
        summary: 'Forget a node and revoke its certificates; its agent and its VMs are left as they are',
        params: IdParams,
        body: body(
          {
            compromised: Type.Optional(
              Type.Boolean({
                description:
                  'others may have had its key: the archives that it signed count as signed by nobody',
              }),
            ),
          },
          {},
        ),
        response: { 200: Nothing },
      },
    },
    async request => {
      const { compromised } = request.body;
      await services.nodes.remove(request.params.id, principalOf(request).username, compromised);
      return {};
    },
  );
};
