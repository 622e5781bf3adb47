// A line at the bottom of the screen about what was done elsewhere than under the eyes. Errors are never said so.

class Toast {
  text = $state('');
  private timer = 0;

  say(text: string) {
    this.text = text;
    clearTimeout(this.timer);
    this.timer = window.setTimeout(() => (this.text = ''), 6000);
  }
}

export const toast = new Toast();
