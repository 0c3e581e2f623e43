// Posts the one-time token as soon as the page is there; without scripts, its button does.
document.getElementById("sign-on").submit();
