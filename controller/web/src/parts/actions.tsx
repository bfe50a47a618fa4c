/** Actions that say why they cannot be taken now, by mouse, keyboard and screen reader. */
import {
  Button,
  type ButtonProps,
  Dropdown,
  DropdownItem,
  DropdownList,
  MenuToggle,
  Tooltip,
} from '@patternfly/react-core';
import EllipsisVIcon from '@patternfly/react-icons/dist/esm/icons/ellipsis-v-icon';
import { useState } from 'react';
import { useNavigate } from 'react-router';
import { useWords } from '../texts/index.tsx';

export interface Action {
  key: string;
  label: string;
  /** Why it may not be taken; undefined when it may. */
  reason?: string | undefined;
  /** Where it leads; or what it does. */
  to?: string;
  /** A file that the browser keeps. */
  download?: string;
  act?: () => void;
  isDanger?: boolean;
}

interface ActionButtonProps extends Pick<ButtonProps, 'variant' | 'size'> {
  action: Action;
  /** For screen readers, where the label alone does not say of what. It begins with the label. */
  name?: string;
}

export function ActionButton({ action, variant = 'secondary', size, name }: ActionButtonProps) {
  const navigate = useNavigate();
  const { label, reason, to, act, isDanger } = action;
  const go = () => (to === undefined ? act?.() : void navigate(to));
  const button = (
    <Button
      variant={isDanger ? 'danger' : variant}
      size={size}
      aria-label={name}
      isAriaDisabled={reason !== undefined}
      onClick={reason === undefined ? go : undefined}
    >
      {label}
    </Button>
  );
  return reason === undefined ? button : <Tooltip content={reason}>{button}</Tooltip>;
}

/** Behind three dots. @param of the name of what they are about */
export function ActionMenu({ of, actions }: { of: string; actions: readonly Action[] }) {
  const { texts } = useWords();
  const navigate = useNavigate();
  const [isOpen, setOpen] = useState(false);
  return (
    <Dropdown
      isOpen={isOpen}
      onOpenChange={setOpen}
      onSelect={() => setOpen(false)}
      popperProps={{ position: 'right' }}
      shouldFocusToggleOnSelect
      shouldFocusFirstItemOnOpen
      toggle={ref => (
        <MenuToggle
          ref={ref}
          variant="plain"
          icon={<EllipsisVIcon />}
          aria-label={texts.list.actionsOf(of)}
          isExpanded={isOpen}
          onClick={() => setOpen(!isOpen)}
        />
      )}
    >
      <DropdownList>
        {actions.map(({ key, label, reason, to, download, act, isDanger }) => (
          <DropdownItem
            key={key}
            isAriaDisabled={reason !== undefined}
            isDanger={isDanger === true && reason === undefined}
            description={reason}
            {...(download !== undefined && reason === undefined ? { to: download, download: '' } : {})}
            onClick={() => {
              if (reason !== undefined) return;
              if (to !== undefined) void navigate(to);
              else act?.();
            }}
          >
            {label}
          </DropdownItem>
        ))}
      </DropdownList>
    </Dropdown>
  );
}
