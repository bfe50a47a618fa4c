/** Settings of the controller that may be changed while it runs. */
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { answer, api, list, SELDOM, type Setting } from '../api/client.ts';
import { ActionMenu } from '../parts/actions.tsx';
import { Dialog } from '../parts/confirm.tsx';
import { NumberField, TextField } from '../parts/fields.tsx';
import { isWritten } from '../parts/number.ts';
import { ViewPage } from '../parts/page.tsx';
import { rightReason } from '../parts/reasons.ts';
import { Shown } from '../parts/shown.tsx';
import { useAsked } from '../parts/use-asked.ts';
import { useWords } from '../texts/index.tsx';

const KEY = ['settings'];

export default function SettingsPage() {
  const { texts } = useWords();
  const query = useQuery({
    queryKey: KEY,
    queryFn: () => list<Setting>(api.GET('/api/settings/', { params: { query: {} } })),
    ...SELDOM,
  });
  return (
    <ViewPage title={texts.settings.title} about={texts.settings.about}>
      <Shown query={query}>{({ results }) => <SettingTable settings={results} />}</Shown>
    </ViewPage>
  );
}

function SettingTable({ settings }: { settings: readonly Setting[] }) {
  const { texts, format } = useWords();
  const words = texts.settings;
  return (
    <Table aria-label={words.title} variant="compact">
      <Thead>
        <Tr>
          <Th modifier="wrap">{texts.common.name}</Th>
          <Th modifier="wrap">{words.value}</Th>
          <Th modifier="wrap">{words.fromFile}</Th>
          <Th modifier="wrap">{words.changed}</Th>
          <Th screenReaderText={texts.list.actions} />
        </Tr>
      </Thead>
      <Tbody>
        {settings.map(setting => (
          <Tr key={setting.name}>
            <Td dataLabel={texts.common.name}>
              {words.names[setting.name]}
              <div className="vk-small">{setting.name}</div>
            </Td>
            <Td dataLabel={words.value}>{setting.value}</Td>
            <Td dataLabel={words.fromFile}>{setting.from_file}</Td>
            <Td dataLabel={words.changed}>
              {setting.modified === null ? texts.none : format.time(setting.modified)}
            </Td>
            <Td isActionCell>
              <SettingMenu setting={setting} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  );
}

function SettingMenu({ setting }: { setting: Setting }) {
  const { texts } = useWords();
  const words = texts.settings;
  const client = useQueryClient();
  const reason = rightReason('settings.manage', useAsked());
  const [asks, setAsks] = useState<'change' | 'reset' | undefined>();
  const close = () => setAsks(undefined);
  const put = async (value: Setting['value'] | null) => {
    await answer(api.PUT('/api/settings/', { body: { name: setting.name, value } }));
    await client.invalidateQueries({ queryKey: KEY });
  };
  const resetReason = setting.modified === null ? words.isOfFile : undefined;
  return (
    <>
      <ActionMenu
        of={words.names[setting.name]}
        actions={[
          { key: 'change', label: words.change, reason, act: () => setAsks('change') },
          { key: 'reset', label: words.reset, reason: reason ?? resetReason, act: () => setAsks('reset') },
        ]}
      />
      {asks === 'change' && <Change setting={setting} put={put} close={close} />}
      {asks === 'reset' && (
        <Dialog title={words.names[setting.name]} submit={words.reset} act={() => put(null)} close={close}>
          {words.resetText(String(setting.from_file))}
        </Dialog>
      )}
    </>
  );
}

interface ChangeProps {
  setting: Setting;
  put: (value: Setting['value']) => Promise<void>;
  close: () => void;
}

function Change({ setting, put, close }: ChangeProps) {
  const { texts } = useWords();
  const words = texts.settings;
  const [value, setValue] = useState(setting.value);
  const field = { id: 'setting-value', label: words.value, isRequired: true };
  return (
    <Dialog
      title={words.names[setting.name]}
      submit={texts.common.save}
      isReady={value !== '' && isWritten({ value })}
      act={() => put(value)}
      close={close}
    >
      {fault =>
        typeof value === 'number' ? (
          <NumberField {...field} value={value} error={fault('value')} change={setValue} />
        ) : (
          <TextField {...field} type="time" value={value} error={fault('value')} change={setValue} />
        )
      }
    </Dialog>
  );
}
