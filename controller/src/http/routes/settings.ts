/** Settings of the controller that may be changed while it runs. */
import type { RouteModule } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { body, listOf, listQuery, nullable, ref } from '../schemas/common.ts';
import { SettingNameText, SettingSchema, SettingValueSchema } from '../schemas/setting.ts';

const tags = ['system'];

export const settingRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/settings/',
    {
      config: { access: 'system.read' },
      schema: {
        tags,
        summary: 'List the settings that may be changed while the controller runs',
        querystring: listQuery({}),
        response: { 200: listOf(SettingSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, SettingSchema, ['name']);
      return listFromArray(request, page, services.settings.list(), { nameOf: ({ name }) => name });
    },
  );

  app.put(
    '/api/settings/',
    {
      config: { access: 'settings.manage' },
      schema: {
        tags,
        summary: 'Change a setting without a restart, for good, or let that of the file count again',
        body: body(
          { name: SettingNameText, value: nullable(SettingValueSchema, 'null: that of the file') },
          { name: 'schedules.per_node', value: 4 },
        ),
        response: { 200: ref(SettingSchema) },
      },
    },
    async ({ body: { name, value } }) => services.settings.set(name, value),
  );
};
